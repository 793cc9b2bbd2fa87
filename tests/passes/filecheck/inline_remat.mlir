// RUN: baechi-opt %s --pass-pipeline=inline-calls --split-input-file | filecheck %s

// A differentiated remat: what it reads goes through one barrier, so that XLA cannot merge the
// recomputation with the forward pass.
// CHECK:      ^bb0(%[[X:.+]]: tensor<4xf32>, %[[G:.+]]: tensor<4xf32>):
// CHECK-NEXT: %[[B:.+]]:2 = "jax.optimization_barrier"(%[[X]], %[[G]]) :
// CHECK-SAME: (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)
// CHECK-SAME: loc("transpose(jvp(layer))"("f.py":7:2))
// CHECK-NEXT: %[[S:.+]] = "jax.cos"(%[[B]]#0)
// CHECK-SAME: loc("transpose(jvp(layer))/rematted_computation"("f.py":3:4))
// CHECK-NEXT: "jax.mul"(%[[S]], %[[B]]#1)
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>, %g: tensor<4xf32>):
    %0 = "jax.remat"(%x, %g) ({
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %1 = "jax.cos"(%a) : (tensor<4xf32>) -> tensor<4xf32> loc("rematted_computation"("f.py":3:4))
      %2 = "jax.mul"(%1, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%2) : (tensor<4xf32>) -> ()
    }) {differentiated = true, prevent_cse = true} : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("transpose(jvp(layer))"("f.py":7:2))
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) : () -> ()

// -----
// One flag per operand: only those that ask for it, and never a token.
// CHECK:      ^bb0(%[[X:.+]]: tensor<4xf32>, %[[G:.+]]: tensor<4xf32>):
// CHECK:      %[[B:.+]] = "jax.optimization_barrier"(%[[G]]) : (tensor<4xf32>) -> tensor<4xf32>
// CHECK-NEXT: "jax.mul"(%[[X]], %[[B]])
// CHECK-NEXT: "jax.debug_callback"(%[[X]], %{{.*}})
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>, %g: tensor<4xf32>):
    %t = "baechi.token"() {effect = "debug"} : () -> !baechi.token
    %0:2 = "jax.remat"(%x, %g, %t) ({
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>, %s: !baechi.token):
      %2 = "jax.mul"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      %3 = "jax.debug_callback"(%a, %s) : (tensor<4xf32>, !baechi.token) -> !baechi.token
      "baechi.yield"(%2, %3) : (tensor<4xf32>, !baechi.token) -> ()
    }) {differentiated = true, prevent_cse = [false, true]} : (tensor<4xf32>, tensor<4xf32>, !baechi.token) -> (tensor<4xf32>, !baechi.token)
    "func.return"(%0#0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) : () -> ()

// -----
// Not differentiated, or not asked to prevent merging: no barrier, as in JAX.
// CHECK-NOT:  optimization_barrier
// CHECK:      %[[S:.+]] = "jax.sin"(%{{.+}})
// CHECK-NEXT: %[[C:.+]] = "jax.cos"(%[[S]])
// CHECK-NEXT: "func.return"(%[[C]])
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %0 = "jax.remat"(%x) ({
    ^bb0(%a: tensor<4xf32>):
      %2 = "jax.sin"(%a) : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%2) : (tensor<4xf32>) -> ()
    }) {differentiated = false, prevent_cse = true} : (tensor<4xf32>) -> tensor<4xf32>
    %1 = "jax.remat"(%0) ({
    ^bb0(%a: tensor<4xf32>):
      %2 = "jax.cos"(%a) : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%2) : (tensor<4xf32>) -> ()
    }) {differentiated = true, prevent_cse = false} : (tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%1) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) : () -> ()

// -----
// In a scan there is one all the same: the scan may be unrolled.
// CHECK:      "jax.scan"(%{{.+}}) ({
// CHECK-NEXT: ^bb0(%[[A:.+]]: tensor<4xf32>):
// CHECK-NEXT:   %[[B:.+]] = "jax.optimization_barrier"(%[[A]])
// CHECK-NEXT:   %[[C:.+]] = "jax.cos"(%[[B]])
// CHECK-NEXT:   "baechi.yield"(%[[C]])
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %0 = "jax.scan"(%x) ({
    ^bb0(%a: tensor<4xf32>):
      %1 = "jax.remat"(%a) ({
      ^bb0(%b: tensor<4xf32>):
        %2 = "jax.cos"(%b) : (tensor<4xf32>) -> tensor<4xf32>
        "baechi.yield"(%2) : (tensor<4xf32>) -> ()
      }) {differentiated = true, prevent_cse = false} : (tensor<4xf32>) -> tensor<4xf32>
      "baechi.yield"(%1) : (tensor<4xf32>) -> ()
    }) {length = 3} : (tensor<4xf32>) -> tensor<4xf32>
    "func.return"(%0) : (tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> tensor<4xf32>} : () -> ()
}) : () -> ()
