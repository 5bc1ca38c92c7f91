"""Policies of forgetting: keep the newest, drop the least valuable, weigh by age."""

from attnknn.insight.forgetting.policies import drop_least_valuable, keep_newest, weigh_by_age
from attnknn.insight.forgetting.record import Change, Forgetting

__all__ = ["Change", "Forgetting", "drop_least_valuable", "keep_newest", "weigh_by_age"]
