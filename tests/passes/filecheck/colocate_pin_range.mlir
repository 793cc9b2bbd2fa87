// RUN: not baechi-opt %s --pass-pipeline=colocate 2>&1 | filecheck %s

// CHECK: 'jax.sin' at f.py:7 is pinned to 'baechi.device:3', but the devices of the topology are 0 to 0
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w: tensor<8x8xf32>):
    %0 = "jax.sin"(%w) : (tensor<8x8xf32>) -> tensor<8x8xf32> loc("jvp(baechi.device:3)"("f.py":7:1))
    "func.return"(%0) : (tensor<8x8xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<8x8xf32>) -> tensor<8x8xf32>} : () -> ()
}) {baechi.topology = #baechi.topology<devices = [#baechi.device<>]>} : () -> ()
