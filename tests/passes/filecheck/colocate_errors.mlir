// RUN: not baechi-opt %s --pass-pipeline=colocate --split-input-file 2>&1 | filecheck %s

// CHECK: 'jax.sin' at f.py:1 is pinned to device 0 and 'jax.cos' at f.py:2 to device 1
// CHECK-SAME: they must share one, together with argument 'w'
// CHECK-SAME: pin both to the same device, or one of them to none
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w: tensor<8x8xf32>):
    %0 = "jax.sin"(%w) : (tensor<8x8xf32>) -> tensor<8x8xf32> loc("baechi.device:0"("f.py":1:1))
    %1 = "jax.cos"(%w) : (tensor<8x8xf32>) -> tensor<8x8xf32> loc("baechi.device:1"("f.py":2:1))
    "func.return"(%0, %1) : (tensor<8x8xf32>, tensor<8x8xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<8x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>), arg_attrs = [{baechi.name = "w", baechi.donated, baechi.state = 0 : i64}]} : () -> ()
}) : () -> ()
