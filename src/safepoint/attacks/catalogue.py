"""Every attack, in the order in which a reader meets the rules."""

from __future__ import annotations

from safepoint.attacks.approval import (
    ChangeRequest,
    ExpiredApproval,
    ForgeApproval,
    RaceApproval,
    ReplayApproval,
    ReuseApproval,
    RollbackDenial,
    SelfApproval,
    StrangerApproval,
    SwapRequest,
)
from safepoint.attacks.decoding import (
    DeepNesting,
    DuplicateKeys,
    NotANumber,
    OversizedRecord,
    SecretInError,
)
from safepoint.attacks.defaults import EverythingInOneFolder
from safepoint.attacks.edit import (
    EditAndRehash,
    EditState,
    FlipByte,
    OtherBytes,
    TornRecord,
    TrailingBytes,
)
from safepoint.attacks.forge import (
    AlgorithmDowngrade,
    KeySubstitution,
    PlantRecord,
    StripSignature,
)
from safepoint.attacks.journals import (
    JournalCut,
    JournalDown,
    JournalEdit,
    JournalInject,
    JournalPlant,
)
from safepoint.attacks.kit import Attack
from safepoint.attacks.live import Aliasing, TimeOfCheck
from safepoint.attacks.location import (
    OpenFolder,
    PlantHardLink,
    PlantSymlink,
    PlantTemp,
    TraverseId,
)
from safepoint.attacks.names import CaseFoldId, DeviceNameId, NewlineId, UnicodeId
from safepoint.attacks.ownership import FormerOwner, SecondWriter
from safepoint.attacks.past import (
    CutOldest,
    DeleteMiddle,
    ForgedBase,
    Reorder,
    SpliceBranches,
)
from safepoint.attacks.payload import PicklePayload, PickleRightType, RowChoosesDecoder, UnknownType
from safepoint.attacks.place import (
    BackdateClock,
    FastForward,
    ReplayOldOnTop,
    SwapStores,
    SwapThreads,
)
from safepoint.attacks.residue import (
    CompromisedWorker,
    CutUnanchored,
    StolenKeyAppend,
    UnpruneThread,
)
from safepoint.attacks.resume import (
    ChangedTool,
    OldCheckpoint,
    OtherVersion,
    RideAlong,
    WiderPermissions,
    WiderTools,
)
from safepoint.attacks.rollback import (
    CutAllButFirst,
    CutNewest,
    DeleteThread,
    Fork,
    Freeze,
    RestoreSnapshot,
    UndeleteByNumber,
    UndeleteThread,
)
from safepoint.attacks.thief import (
    RetiredKey,
    StolenKeyRewrite,
    StolenKeyUndelete,
    ThiefPrunes,
)

_ALL: tuple[type[Attack], ...] = (
    EditState,
    PlantRecord,
    SwapThreads,
    TimeOfCheck,
    PicklePayload,
    PickleRightType,
    TraverseId,
    PlantSymlink,
    PlantHardLink,
    PlantTemp,
    OpenFolder,
    CaseFoldId,
    UnicodeId,
    DeviceNameId,
    NewlineId,
    RetiredKey,
    ThiefPrunes,
    UnknownType,
    DuplicateKeys,
    NotANumber,
    SecretInError,
    RowChoosesDecoder,
    OversizedRecord,
    DeepNesting,
    FlipByte,
    EditAndRehash,
    OtherBytes,
    TrailingBytes,
    StripSignature,
    AlgorithmDowngrade,
    KeySubstitution,
    SwapStores,
    ReplayOldOnTop,
    TornRecord,
    FastForward,
    BackdateClock,
    Aliasing,
    ForgedBase,
    Reorder,
    DeleteMiddle,
    CutOldest,
    SpliceBranches,
    CutNewest,
    CutAllButFirst,
    RestoreSnapshot,
    Freeze,
    DeleteThread,
    UndeleteThread,
    UndeleteByNumber,
    StolenKeyUndelete,
    Fork,
    StolenKeyRewrite,
    FormerOwner,
    SecondWriter,
    OldCheckpoint,
    RollbackDenial,
    OtherVersion,
    WiderTools,
    ChangedTool,
    WiderPermissions,
    RideAlong,
    ForgeApproval,
    StrangerApproval,
    SelfApproval,
    SwapRequest,
    ChangeRequest,
    ReplayApproval,
    ReuseApproval,
    RaceApproval,
    ExpiredApproval,
    JournalDown,
    JournalEdit,
    JournalCut,
    JournalInject,
    JournalPlant,
    EverythingInOneFolder,
    CutUnanchored,
    StolenKeyAppend,
    CompromisedWorker,
    UnpruneThread,
)

ATTACKS: dict[str, type[Attack]] = {each.id: each for each in _ALL if not each.residue}
"""Every attack by its id."""

RESIDUE: dict[str, type[Attack]] = {each.id: each for each in _ALL if each.residue}
"""What nothing in a store can detect, by its id."""
