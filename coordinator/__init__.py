"""The coordinator service: owns the algorithm (outer loop, certificate, stopping) and the K worker streams."""
