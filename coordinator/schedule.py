"""Pure decisions about rounds: how much work, and when to certify. They depend on counts, never on clocks, so that the
same seed takes the same decisions."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

CERTIFICATE_SHARE = 0.1
"""Share of the passes made so far that passes for certificates should stay under."""

CERTIFICATE_PASSES = 0.4
"""What a certificate costs, in passes of the local solver (it reads the data once and writes nothing)."""


@dataclass(frozen=True, slots=True)
class Spacing:
    """How far certificates lie apart without estimates, in passes.

    soonest : at least
    growth : at most, as a share of the passes made so far: a wrong forecast costs no more
    """

    soonest: float = CERTIFICATE_PASSES / CERTIFICATE_SHARE * 0.25
    growth: float = 0.5


SCREENED = Spacing(5.0, 0.1)
"""Where features are left out: a pass is short, a certificate looks at all features, but it is what chooses them
(Lasso, news20-like, K = 2, lam / lam_max 0.1 / 0.02 / 0.005: 90 / 140 / 225 rounds with 18 / 22 / 27 certificates; with
a growth of 0.5 164 / 213 / 348 rounds)."""

ESTIMATE_PASSES = 0.4
"""Passes between two estimates, at least."""

NEAR = 10.0
"""By what factor at most a round makes the gap smaller."""

UNESTIMATED_PASSES = 6.0
"""Passes after which a certificate is due whatever the estimates say, at least."""


@dataclass(frozen=True, slots=True)
class Work:
    """A worker's work in a round.

    visits : by block, buckets to visit;  fraction : p_k, the share of its coordinates (at most 1);  passes : visits as
    a share of all its buckets, may be more than 1
    """

    visits: tuple[int, ...]
    fraction: float
    passes: float


def plan_work(buckets: Sequence[int], epochs: float) -> Work:
    """Visits for a worker whose blocks have that many buckets; at least one bucket of every block."""
    return work_of([max(1, round(epochs * count)) for count in buckets], buckets)


def work_of(visits: Sequence[int], buckets: Sequence[int]) -> Work:
    """The work of a worker that visits so many of its blocks' buckets."""
    shares = [visit / count for visit, count in zip(visits, buckets, strict=True)]
    return Work(tuple(visits), min(1.0, *shares), sum(visits) / sum(buckets))


def automatic_epochs(
    entries: int,
    rows: int,
    support: int,
    workers: int,
    blocks: int,
    loopback: bool,
    together: int = 1,
    later: bool = False,
    coupling: float = math.inf,
) -> float:
    """Passes a round when the user does not say: the share p of a pass that balances work saved against rounds made.

    The passes needed grow with p, with one block about as 1 + p / 8 (hinge at 1e-5, passes for p = 0.5, 1, 2, 4:
    news20-like 25, 27, 32, 36, covtype-like 23, 24, 28); with several blocks hardly where features are few and all rows
    share them, else much (K = 2, passes for p = 1/16, 1/8, 1/4, 1/2, 1: covtype-like 21, 20, 22, 22, 22, rcv1-like 7,
    7, 8, 13, 23, news20-like 51, 75, 105, 144, 211), unless rows are coupled loosely (K = 2, passes for p = 1/4, 1 by
    coupling: logistic, words 0.016 4, 4; 0.16 6, 9; rcv1-like 0.05 4, 3; 0.5 7, 13; hinge, words 0.03 4, 5; 0.3 6, 10;
    rcv1-like 0.1 4, 5; 0.3 5, 9; 1 8, 23); a round costs its messages whatever p is. From the size of the data and
    typical speeds, not from a clock: the same job takes the same decision everywhere.

    Parameters
    ----------
    entries, rows, support : of the largest shard: stored entries, rows, shared entries it sends and receives
    workers, blocks : of the whole job
    loopback : all workers are on this machine
    together : problems whose rounds share the messages
    later : once many passes have been made, see lengthened
    coupling : see ObjectiveConfig.coupling_of_rows; a block's steps are the shorter the more blocks there are, as if
        they were coupled so many times as much
    """
    a_pass = (ENTRY_SECONDS * entries + ROW_SECONDS * rows) * workers / blocks
    messages = _messages(support, workers, loopback, together)
    if blocks == 1:
        kind = SINGLE_BLOCK_LATER if later else SINGLE_BLOCK
    else:
        growth = LEAST_GROWTH if is_narrow(rows * workers, support) else GROWTH_BY_COUPLING * coupling * blocks
        kind = (min(MOST_GROWTH, max(LEAST_GROWTH, growth)), *SEVERAL_BLOCKS)
    return _balanced(a_pass, messages, kind)


def blocks_are_free(
    threads: int, blocks: int, entries: int, shared: int, coupling: float, tol: float, alone: bool = False
) -> bool:
    """A block for each of a worker's threads costs hardly any passes until that relative gap, and less than it saves.

    Parameters
    ----------
    threads, entries : of the worker with the most;  blocks : of all workers together
    shared : length of the shared vector, of which every block has one of its own
    alone : of a sole worker that ends its rounds itself: its blocks tell each other often
    """
    worth = entries >= threads * WORTH_A_BLOCK and entries >= threads * ENTRIES_WORTH_A_VECTOR * min(shared, entries)
    loose = LOOSE_ALONE if alone and tol >= COARSE else LOOSE
    return worth and blocks * coupling <= loose and tol >= (FINE if alone else COARSE)


def two_blocks_pay(entries: int, coupling: float, tol: float) -> bool:
    """Of a sole worker where features are few: a second block costs few passes until that relative gap. More do not
    pay: the passes grow as they do (covtype-like, hinge, lam 1e-5: 16, 22, 41, 81 with 1, 2, 4, 8).

    Hinge and logistic, to 1e-3, seconds with one block, two blocks, and two workers: covtype-like 1e-4, coupling 0.1,
    0.15, 0.09, 0.14 and 0.14, 0.09, 0.10; kdd99 1e-5, 0.4, 0.24, 0.18, 0.22 and 0.26, 0.17, 0.20; 1e-6, 4, 0.8 (13
    passes), 1.5 (44), 0.9 (22) for the hinge.

    Parameters
    ----------
    entries, coupling : as for blocks_are_free
    """
    return entries >= 2 * WORTH_A_BLOCK and coupling <= LOOSE_WITH_FEW and tol >= COARSE


def newton_pays(features: int, coupling: float, entries: int, rows: int, smooth: bool) -> bool:
    """One worker is sooner done by Newton's method than by coordinate ascent; see worker.newton.

    Ascent takes about sqrt(coupling) times as many passes, Newton three to eight whatever that is, each of which costs
    half the entries of a row as often; with many features, which are rare then, the hinge loss takes it more. (Passes
    to 1e-3 by coupling c, ascent and Newton: covtype-like, hinge, c = 0.1 6 and 7, 1 13 and 7, 10 63 and 8; logistic,
    0.05 10 and 3, 0.5 38 and 3; a9a, hinge, 0.9 6 and 13, 860 368 and 26; kdd99, hinge, 4 22 and more than 40.)

    Parameters
    ----------
    features, entries, rows : of the data;  coupling : see ObjectiveConfig.coupling_of_rows. Where rows are so long, and
        lam so small, that A z is what rounding leaves of products x z, it cannot tell w = A z / lam
    smooth : the loss is, so that it need not be smoothed first
    """
    length = entries / rows / ENTRIES_OF_A_ROW
    width = max(1.0, features / FEATURES_OF_A_ROW)
    exact = coupling * rows * EPSILON <= EXACT
    worth = (WORTH_NEWTON if smooth else WORTH_NEWTON_SMOOTHED) * (length * width) ** 2
    return features <= FEW and coupling >= worth and exact


def lengthened(epochs: float, longest: float, passes: float) -> float:
    """Passes of the next round after so many: at first `epochs`, doubled while they are at most half of those made.

    The last round of a run makes half of its passes in vain, so that long ones cost where few rounds do, and elsewhere
    they spare messages. (News20-like, one worker, hinge to 1e-3, seconds with 2, 4 and 8 passes in all rounds: lam 1e-4
    0.38, 0.49, 0.82, 1e-5 1.37, 0.80, --, 1e-6 2.38, 2.21, 2.85.)
    """
    while 2.0 * epochs <= min(longest, 0.5 * passes):
        epochs *= 2.0
    return epochs


def sole_epochs(epochs: float, entries: int, rows: int, blocks: int, seconds: float) -> float:
    """Passes of the first round of a sole worker, which ends it as soon as that seems to be enough.

    Momentum saves some of the passes where many are needed, and few where it has to wait for that; every round costs
    messages and vectors, which with many features is as much as a pass. (One block, hinge, to 1e-3; passes, rounds and
    seconds, without such a round and with one of 24 passes: news20-like 1e-4 6, 3, 0.31 and 5, 1, 0.28; 1e-5 20, 7,
    0.89 and 20, 1, 0.78; imdb 1e-5 22, 11, 0.26 and 21, 1, 0.20; rcv1-like 1e-6 17, 17, 0.78 and 20, 1, 0.84;
    debdesc 1e-6 72, 20, 2.0 and, with 16, 76, 16, 2.2. Two blocks, logistic, 1e-4: rcv1-like 4, 4, 0.20 and 4, 1,
    0.14; news20-like 4, 4, 0.40 and 4, 1, 0.24.)

    Parameters
    ----------
    epochs : of the other rounds;  entries, rows : of its shard;  blocks : of the shard
    seconds : that the run may take
    """
    a_pass = (ENTRY_SECONDS * entries + ROW_SECONDS * rows) / blocks
    return max(
        epochs, min(MOST_SOLE, math.floor(min(SOLE_SECONDS, SOLE_SHARE * seconds) / a_pass) if a_pass > 0.0 else 1.0)
    )


def is_narrow(examples: int, features: int) -> bool:
    """Features are so few that all rows share them: a block learns what others did from a few of its own rows."""
    return features < NARROW * examples


def screened_epochs(
    entries: int, support: int, workers: int, blocks: int, loopback: bool, together: int = 1, quadratic: bool = True
) -> float:
    """The same where features are left out: passes are short, but not what travels, nor certificates, which are many.

    A certificate looks at all features. Those that are not left out are dealt to few parts (see
    partition.deal_features): all passes count as made by one worker. (Lasso to a relative gap of 1e-6, rounds at
    lam / lam_max 0.1 / 0.02 / 0.005:)

        passes in a round           1               2               4               8
        flights, K = 1              41 / 85 / 74                    11 / 24 / 31    6 / 17 / 16
        flights, K = 2              41 / 90 / 101                   17 / 46 / 65    15 / 29 / 77
        news20-like, K = 1          61 / 41 / 51                    17 / -- / 15    10 / 6 / 9
        news20-like, K = 2          61 / 51 / 57                    25 / 24 / 37    17 / 18 / 43

    quadratic : f equals the bound that the workers minimise. Else its minimum is not worth so much (logistic, lam
        1e-4, K = 1: 46, 34 and 34 rounds of 1, 2 and 8 passes)
    """
    a_pass = ENTRY_SECONDS * VISITED_SHARE * entries * workers
    a_round = _messages(support, workers, loopback, together) + ENTRY_SECONDS * entries
    epochs = _balanced(a_pass, a_round, SINGLE_SCREENED if blocks == 1 else SEVERAL_SCREENED)
    return epochs if quadratic else min(epochs, MOST_OF_A_BOUND)


def _messages(support: int, workers: int, loopback: bool, together: int) -> float:
    """Seconds that the messages of a round take, of each of the problems that share them."""
    latency, bandwidth = LOOPBACK if loopback else NETWORK
    return latency / together + 2 * 8 * support * workers / bandwidth


def _balanced(a_pass: float, a_round: float, kind: tuple[float, float, float]) -> float:
    """The p with the least (1 + growth p) (a_pass + a_round / p), rounded to a power of two."""
    growth, smallest, largest = kind
    best = math.sqrt(a_round / (growth * a_pass)) if a_pass > 0 else 1.0
    return min(largest, max(smallest, 2.0 ** round(math.log2(best))))


LOOPBACK = (1.5e-3, 3e8)
NETWORK = (2e-3, 1.1e8)
"""Seconds a round costs beside its bytes, and bytes a second, on loopback and on 1 Gbit/s."""

ENTRY_SECONDS = 2e-9
ROW_SECONDS = 1e-8
"""What the local solver takes for an entry and for a row."""

SINGLE_BLOCK = (1 / 8, 1 / 2, 2.0)
SINGLE_BLOCK_LATER = (1 / 8, 1 / 2, 8.0)
SEVERAL_BLOCKS = (1 / 32, 1.0)
SINGLE_SCREENED = (1 / 8, 1.0, 16.0)
SEVERAL_SCREENED = (1 / 2, 1.0, 8.0)
"""How the passes needed grow with p (of several blocks: see below), and the smallest and the largest p to be chosen."""

LEAST_GROWTH = 1 / 4
MOST_GROWTH = 4.0
GROWTH_BY_COUPLING = 2.0
"""With several blocks: by that times the coupling and the blocks, at least and at most by so much; where features are
few by the least."""

COARSE = 1e-3
"""Relative gap down to which further blocks cost few passes, where they do so at all. (To 1e-4, covtype-like: two need
80 passes and 1.28 s, one 23 and 0.55 s; words, logistic, lam 1e-5: 8 and 4 passes.)"""

FINE = 1e-4
"""The same of a sole worker, where rows are coupled loosely. (To 1e-4, one block and two that tell each other eight
times in a pass, passes by coupling: hinge, rcv1-like 0.1 5, 4.7; words 0.03 6, 4.5; 0.3 5, 35; logistic, words 0.02 4,
4; imdb 0.04 4, 5.)"""

LOOSE_WITH_FEW = 1.0
"""Coupling up to which two blocks are worth while where features are few."""

LOOSE = 0.16
"""Coupling times blocks up to which that is so where features are many. (To 1e-3, one block and two, of one worker with
two threads: logistic, lam 1e-4, rcv1-like 0.27 and 0.23 s, words 0.73 and 0.41, news20-like 0.49 and 0.45, debdesc 0.23
and 0.22; 1e-5, debdesc 0.30 and 0.24; hinge, 1e-4, words 0.68 and 0.44. For passes see automatic_epochs.)"""

LOOSE_ALONE = 0.7
"""The same of a sole worker. (Passes with one block and two that tell each other eight times in a pass, by coupling:
hinge, words 0.32 4, 3.7; rcv1-like 0.33 4, 3.7; 1 4, 6.6; imdb 0.8 5, 20; debdesc, four times, 0.32 4, 4; 1 5, 12.)"""

FEW = 256
ENTRIES_OF_A_ROW, FEATURES_OF_A_ROW = 12.0, 54.0
WORTH_NEWTON = 0.04
WORTH_NEWTON_SMOOTHED = 1.0
"""Features at most, and coupling at least with rows of so many entries and features, for Newton's method."""

EPSILON = 2.0**-53
EXACT = 0.1
"""What a sum is rounded by, and up to what multiple of lam that may come; then A z is right to a thousandth of that."""

MOST_SOLE = 24.0
SOLE_SECONDS = 2.0
SOLE_SHARE = 0.1
"""Passes, and seconds and a share of those there are, by a guess, of a sole worker's first round at most: until it ends
nobody hears of the run."""

ENOUGH = 0.99
"""Of the gap that ends the run is what a sole worker ends its rounds by: it adds up in another order."""

NEWTON_SHARE = 0.8
"""Of the gap that ends the run is what Newton's method is asked for: the certificate is computed anew."""

WORTH_A_BLOCK = 1 << 20
ENTRIES_WORTH_A_VECTOR = 2
"""Entries that a block has at least, and for each that its vectors have: making and adding these up costs, too."""

NARROW = 1 / 100
"""Features an example, up to which they are few."""

MOST_OF_A_BOUND = 2.0
"""Passes a round when the subproblem only bounds f."""

VISITED_SHARE = 1 / 4
"""Of the entries, those of features that are not left out: few features, but the most frequent ones."""


SAMPLED = 4096
"""Coordinates whose gaps estimate the gap of all to a few percent."""

SOLE_SAMPLED = 1024
"""Such that are enough to tell the gap within a quarter of it."""

SAMPLE_STRIDE = 16
"""An estimate reads at most one in so many rows: a tenth of a certificate, or less."""


def sample_stride(coordinates: int) -> int:
    """Every how many groups of rows an estimate of the gap reads; 1 where there are too few rows to sample."""
    return max(1, min(SAMPLE_STRIDE, coordinates // SAMPLED))


def sole_stride(rows: int) -> int:
    """The same of a sole worker, to end a round by: it looks at all rows before it goes by what is close."""
    return max(1, min(SAMPLE_STRIDE, rows // SOLE_SAMPLED))


class CertificateSchedule:
    """When to certify: often enough to stop soon after the target is reached, rarely enough to cost little.

    Where there are rows enough, cheap estimates of the gap from a sample of rows say when a certificate is worth its
    price; otherwise the trend of the certificates themselves does. An estimate never ends a run.

    Parameters
    ----------
    target : relative gap to stop at
    every_round : certify always
    stride : of the sample an estimate reads; 1: no estimates
    spacing : without estimates
    """

    def __init__(
        self,
        target: float,
        every_round: bool = False,
        stride: int = 1,
        spacing: Spacing = Spacing(),  # frozen
    ) -> None:
        self._spacing = spacing
        self._target = target
        self._every_round = every_round
        self._stride = stride
        self._next = 0.0
        self._next_estimate = 0.0
        self._estimate = math.nan
        self._correction = 1.0
        self._last: tuple[float, float] | None = None

    def state(self) -> list[float]:
        """What `restore` needs."""
        return [self._next, self._next_estimate, self._estimate, self._correction, *(self._last or ())]

    def restore(self, state: Sequence[float]) -> None:
        """Be where `state` was called."""
        self._next, self._next_estimate, self._estimate, self._correction = state[:4]
        self._last = (state[4], state[5]) if len(state) == 6 else None

    def sample(self, passes: float) -> int:
        """Stride of the sample to estimate the gap from in the round after that many passes; 0: no estimate."""
        if self._every_round or self._stride == 1 or passes < self._next_estimate:
            return 0
        return self._stride

    def estimated(self, passes: float, relative_gap: float) -> None:
        """A sample said so in the round after `passes`. Certify next when the target seems to be reached."""
        self._next_estimate = passes + max(ESTIMATE_PASSES, 0.03 * passes)
        self._estimate = relative_gap
        if self._last is not None and passes - self._last[0] < CERTIFICATE_PASSES:
            return
        if self.hopeful:
            self._next = passes

    @property
    def hopeful(self) -> bool:
        """The last estimate says that the target has been reached."""
        return self._estimate * self._correction <= self._target

    @property
    def near(self) -> bool:
        """What was seen last is so close to the target that a round may reach it."""
        seen = (self._estimate * self._correction, math.inf if self._last is None else self._last[1])
        return any(gap <= NEAR * self._target for gap in seen)

    def due(self, passes: float) -> bool:
        """Certify in the round that begins after that many passes over the data?"""
        return self._every_round or passes >= self._next

    def certified(self, passes: float, relative_gap: float) -> None:
        """A certificate was made after `passes`; plan the next one.

        The logarithm of the gap is followed in a straight line from the last certificate to the target; the next
        certificate comes a little before that, but neither so soon that certificates would dominate nor so late that
        a wrong forecast would cost more than half of what was already done.
        """
        if self._stride > 1:
            # a certificate says by how much the estimate before it was off
            if self._estimate > 0 and relative_gap > 0:
                self._correction = min(2.0, max(0.5, relative_gap / self._estimate))
            self._last = (passes, relative_gap)
            # the first one comes soon: estimates are relative to the primal value it finds
            self._next = passes + (max(UNESTIMATED_PASSES, 0.5 * passes) if passes >= 1.0 else 1.0)
            return
        soonest, growth = (self._spacing.soonest, self._spacing.growth) if passes > 0 else (1.0, 0.0)
        wait = max(soonest, 0.5 * growth * passes)
        if self._last is not None:
            last_passes, last_gap = self._last
            if 0 < relative_gap < last_gap and passes > last_passes:
                slope = (math.log(last_gap) - math.log(relative_gap)) / (passes - last_passes)
                ahead = (math.log(relative_gap) - math.log(self._target)) / slope
                wait = max(soonest, min(0.9 * ahead, growth * passes))
        self._last = (passes, relative_gap)
        self._next = passes + wait
