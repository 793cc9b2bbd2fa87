"""Models of jraph: a graph network, whose messages are gathered and scattered."""

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import jraph
import numpy as np
import optax

Built = tuple[Any, tuple[Any, ...]]


def graph_network(
    nodes: int = 512, edges: int = 2048, width: int = 96, layers: int = 4, graphs: int = 8
) -> Built:
    """``jraph.GraphNetwork`` layers: edge, node and global updates with segment sums."""

    def mlp(inputs: Any) -> Any:
        return hk.nets.MLP([width, width], activate_final=True)(inputs)

    def forward(graph: jraph.GraphsTuple) -> Any:
        graph = jraph.GraphMapFeatures(hk.Linear(width), hk.Linear(width), hk.Linear(width))(graph)
        for _ in range(layers):
            before = graph
            graph = jraph.GraphNetwork(
                update_edge_fn=jraph.concatenated_args(mlp),
                update_node_fn=jraph.concatenated_args(mlp),
                update_global_fn=jraph.concatenated_args(mlp),
            )(graph)
            graph = graph._replace(
                nodes=hk.LayerNorm(-1, True, True)(graph.nodes + before.nodes),
                edges=graph.edges + before.edges,
            )
        return hk.Linear(1)(graph.globals)[:, 0]

    net = hk.without_apply_rng(hk.transform(forward))
    optimizer = optax.adamw(1e-3, eps=1e-4)

    def step(state: Any, graph: Any, target: Any) -> Any:
        params, optimizer_state = state

        def loss(params: Any) -> Any:
            error = net.apply(params, graph) - target
            return jnp.sum(jnp.where(jraph.get_graph_padding_mask(graph), error**2, 0.0))

        value, grads = jax.value_and_grad(loss)(params)
        updates, optimizer_state = optimizer.update(grads, optimizer_state, params)
        return (optax.apply_updates(params, updates), optimizer_state), value

    random = np.random.default_rng(0)
    ends = random.integers(0, nodes, (2, edges))
    graph = jraph.GraphsTuple(
        nodes=jnp.asarray(random.normal(size=(nodes, 16)), jnp.float32),
        edges=jnp.asarray(random.normal(size=(edges, 8)), jnp.float32),
        senders=jnp.asarray(ends[0], jnp.int32),
        receivers=jnp.asarray(ends[1], jnp.int32),
        globals=jnp.zeros((graphs, 4)),
        n_node=jnp.full(graphs, nodes // graphs, jnp.int32),
        n_edge=jnp.full(graphs, edges // graphs, jnp.int32),
    )
    params = jax.jit(net.init)(jax.random.key(0), graph)
    return step, ((params, optimizer.init(params)), graph, jnp.arange(graphs, dtype=jnp.float32))
