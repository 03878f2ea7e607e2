"""The processes (ranks) that share a run, and the shards of its slots that they compute.

A shard is a fixed block of slots. Everything that rounds or draws random numbers is computed shard by shard, and merged in
the order of shards, so the number of ranks does not change a bit of the result.
"""

from holdfast.ranks.group import Group, OrderedSum, RankLostError
from holdfast.ranks.shards import Moments, Shards
