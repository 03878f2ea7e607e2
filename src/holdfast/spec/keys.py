"""The names under which tensors travel in a TensorDict: the one place they are spelt.

Everything that *arrives with* an observation (reward, dones, truncateds) describes the step that led to it (the action
mask: the one that may follow), so `dones | truncateds` at row t says that observation t opens a new episode. DESIGN calls that `first`.
"""

# in: what a policy is given
OBS = "env_obs"
REWARDS = "rewards"
DONES = "dones"
TRUNCATEDS = "truncateds"
ACTION_MASK = "action_mask"  # bool per choice: legal now; where the world's actions are masked
SLOT_START = "training_env_id_start"  # slot number of row 0; rows are consecutive slots
SLOT_IDS = "slot_ids"  # slot number of every row; wins over SLOT_START

# the memory a call starts from: one entry per state leaf, `start_state_0`, `start_state_1`, ...
START_STATE = "start_state_"

# out: what a policy writes
ACTIONS = "actions"
LOG_PROB = "act_log_prob"
ENTROPY = "entropy"
VALUES = "values"
FULL_LOG_PROBS = "full_log_probs"
FINAL_STATE = "final_state_"

# shape of the flattened batch, as the seeds' components expect it
BPTT = "bptt"
BATCH = "batch"
