"""Define the typed settings with their limits, and load them from `key=value` words and settings files."""

from holdfast.config.batches import BatchPlan, plan_batches
from holdfast.config.describe import Key, describe_keys
from holdfast.config.files import describe_ready, settings_to_yaml
from holdfast.config.load import load_run_settings, load_run_world, load_settings
from holdfast.config.settings import Settings
from holdfast.config.words import list_keys
