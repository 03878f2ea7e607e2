"""Names of tensors in a TensorDict, defined here only.

Reward, dones and truncateds at row t belong to the step that led to observation t; the action mask belongs to the
next action. So `first = dones | truncateds` at row t means that observation t starts a new episode.
"""

# inputs of a policy
OBS = "env_obs"
REWARDS = "rewards"
DONES = "dones"
TRUNCATEDS = "truncateds"
ACTION_MASK = "action_mask"  # bool per action: legal now; only if the world masks actions
SLOT_START = "training_env_id_start"  # slot number of row 0; rows are consecutive slots
SLOT_IDS = "slot_ids"  # slot number of every row; takes precedence over SLOT_START

# recurrent state at the start of a call: one entry per tensor, `start_state_0`, `start_state_1`, ...
START_STATE = "start_state_"

# outputs of a policy
ACTIONS = "actions"
LOG_PROB = "act_log_prob"
ENTROPY = "entropy"
VALUES = "values"
FULL_LOG_PROBS = "full_log_probs"
FINAL_STATE = "final_state_"

# shape of the flattened batch, as the seeds' components expect it
BPTT = "bptt"
BATCH = "batch"
