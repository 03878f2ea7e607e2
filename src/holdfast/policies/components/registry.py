"""Components by the name they have in a file. A file can name nothing else."""

from __future__ import annotations

from holdfast.policies.components import cores, heads, layers, observations
from holdfast.policies.components.component import Component

COMPONENTS: dict[str, type[Component]] = {
    kind.__name__: kind
    for kind in (
        layers.Linear,
        layers.Conv2d,
        layers.Flatten,
        layers.LayerNorm,
        layers.ReLU,
        layers.Tanh,
        layers.SiLU,
        layers.Dropout,
        layers.Identity,
        layers.ResidualMLP,
        layers.Concat,
        layers.Add,
        layers.Mean,
        observations.ObsTokenPadStrip,
        observations.ObsAttrValNorm,
        observations.ObsAttrEmbedFourier,
        observations.ObsAttrCoordEmbed,
        observations.ObsLatentAttn,
        observations.ObsSelfAttn,
        observations.ObsTokenToBoxShaper,
        observations.ObservationNormalizer,
        observations.ObsOwnLinear,
        observations.ObsVector,
        cores.LSTM,
        cores.GRU,
        cores.MinGRU,
        cores.Memoryless,
        heads.ActionEmbedding,
        heads.MettaActorSingleHead,
        heads.ActionHead,
    )
}
CELLS = {kind.cell: name for name, kind in COMPONENTS.items() if issubclass(kind, cores.CoreComponent)}
