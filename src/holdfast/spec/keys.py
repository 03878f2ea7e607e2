"""Names of the tensors in a TensorDict. All modules import the names from this file.

The entries of `rewards`, `dones` and `truncateds` at row t belong to the step that led to observation t; `action_mask`
belongs to the next action. So `first = dones | truncateds` at row t means that observation t starts a new episode.
"""

# inputs of a policy
OBS = "env_obs"
REWARDS = "rewards"
DONES = "dones"
TRUNCATEDS = "truncateds"
LAST_ACTIONS = "last_actions"  # the action of the step that led to the observation; none: -1, or 0 for real numbers
ACTION_MASK = "action_mask"  # one bool per action, true: legal; present only if the world masks actions
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

# shape of the flattened batch; component policies expect these names
BPTT = "bptt"
BATCH = "batch"
