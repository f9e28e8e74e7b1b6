"""Approvals: what somebody is asked, and the signed statement that they answer with.

A `Question` says exactly what is to be resumed. An `Approver` signs a yes or a no to it, with a
key that no worker has. `Approvers` knows whose keys count, and tells a genuine answer to this
question from every other text.

These classes decide; they touch no disk.
"""

from __future__ import annotations

from safepoint.approval.approver import Approver
from safepoint.approval.approvers import Approvers
from safepoint.approval.arguments import checked_arguments
from safepoint.approval.question import Question
from safepoint.approval.statement import Approval, Verdict
from safepoint.approval.validity import SKEW

__all__ = ["SKEW", "Approval", "Approver", "Approvers", "Question", "Verdict", "checked_arguments"]
