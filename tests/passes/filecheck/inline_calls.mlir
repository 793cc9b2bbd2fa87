// RUN: baechi-opt %s --pass-pipeline=inline-calls --split-input-file | filecheck %s

// A jit in a jit: one flat list of ops, the operands of the calls wired through.
// CHECK:      ^bb0(%[[X:.+]]: tensor<4xf32>):
// CHECK-NEXT: %[[SIN:.+]] = "jax.sin"(%[[X]])
// CHECK-SAME: loc("outer/inner/b"("f.py":3:4))
// CHECK-NEXT: %[[MUL:.+]] = "jax.mul"(%[[SIN]], %[[X]])
// CHECK-SAME: loc("outer"("f.py":4:4))
// CHECK-NEXT: "func.return"(%[[MUL]], %[[X]])
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>):
    %0:2 = "jax.jit"(%x) ({
    ^bb0(%a: tensor<4xf32>):
      %1 = "jax.jit"(%a) ({
      ^bb0(%b: tensor<4xf32>):
        %2 = "jax.sin"(%b) : (tensor<4xf32>) -> tensor<4xf32> loc("b"("f.py":3:4))
        "baechi.yield"(%2) : (tensor<4xf32>) -> ()
      }) {name = "g"} : (tensor<4xf32>) -> tensor<4xf32> loc("inner"("f.py":2:2))
      %3 = "jax.mul"(%1, %a) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("f.py":4:4)
      "baechi.yield"(%3, %a) : (tensor<4xf32>, tensor<4xf32>) -> ()
    }) {name = "f"} : (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>) loc("outer"("f.py":1:1))
    "func.return"(%0#0, %0#1) : (tensor<4xf32>, tensor<4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)} : () -> ()
}) : () -> ()

// -----
// Functions with custom derivatives and closed calls are their bodies.
// CHECK-NOT:  _call
// CHECK:      %[[A:.+]] = "jax.sin"
// CHECK-NEXT: %[[B:.+]] = "jax.cos"(%[[A]])
// CHECK-NEXT: %[[C:.+]] = "jax.exp"(%[[B]])
// CHECK-NEXT: "func.return"(%[[C]])
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    %0 = "jax.custom_jvp_call"(%x) ({
    ^bb0(%a: tensor<f32>):
      %3 = "jax.sin"(%a) : (tensor<f32>) -> tensor<f32>
      "baechi.yield"(%3) : (tensor<f32>) -> ()
    }) : (tensor<f32>) -> tensor<f32>
    %1 = "jax.custom_vjp_call"(%0) ({
    ^bb0(%a: tensor<f32>):
      %3 = "jax.cos"(%a) : (tensor<f32>) -> tensor<f32>
      "baechi.yield"(%3) : (tensor<f32>) -> ()
    }) : (tensor<f32>) -> tensor<f32>
    %2 = "jax.closed_call"(%1) ({
    ^bb0(%a: tensor<f32>):
      %3 = "jax.exp"(%a) : (tensor<f32>) -> tensor<f32>
      "baechi.yield"(%3) : (tensor<f32>) -> ()
    }) : (tensor<f32>) -> tensor<f32>
    "func.return"(%2) : (tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>} : () -> ()
}) : () -> ()

// -----
// A loop stays, with the name stack of the call around it; calls in its body go. Inside the body,
// name stacks are relative to the loop.
// CHECK:      "jax.while"(%{{.+}}) ({
// CHECK-NEXT: ^bb0(%[[P:.+]]: tensor<i1>):
// CHECK-NEXT:   "baechi.yield"(%[[P]])
// CHECK-NEXT: }, {
// CHECK-NEXT: ^bb0(%[[C:.+]]: tensor<i1>):
// CHECK-NEXT:   %[[N:.+]] = "jax.not"(%[[C]]) {{.*}} loc("step")
// CHECK-NEXT:   "baechi.yield"(%[[N]])
// CHECK-NEXT: }) {{.*}} loc("outer/loop")
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<i1>):
    %0 = "jax.jit"(%x) ({
    ^bb0(%a: tensor<i1>):
      %1 = "jax.while"(%a) ({
      ^bb0(%p: tensor<i1>):
        "baechi.yield"(%p) : (tensor<i1>) -> ()
      }, {
      ^bb0(%c: tensor<i1>):
        %2 = "jax.jit"(%c) ({
        ^bb0(%d: tensor<i1>):
          %3 = "jax.not"(%d) : (tensor<i1>) -> tensor<i1>
          "baechi.yield"(%3) : (tensor<i1>) -> ()
        }) : (tensor<i1>) -> tensor<i1> loc("step")
        "baechi.yield"(%2) : (tensor<i1>) -> ()
      }) : (tensor<i1>) -> tensor<i1> loc("loop")
      "baechi.yield"(%1) : (tensor<i1>) -> ()
    }) : (tensor<i1>) -> tensor<i1> loc("outer")
    "func.return"(%0) : (tensor<i1>) -> ()
  }) {sym_name = "main", function_type = (tensor<i1>) -> tensor<i1>} : () -> ()
}) : () -> ()

// -----
// The order of effects is data flow, and goes through the border like any value.
// CHECK:      %[[T0:.+]] = "baechi.token"()
// CHECK-NEXT: %[[T1:.+]] = "jax.debug_callback"(%{{.+}}, %[[T0]])
// CHECK-NEXT: %[[T2:.+]] = "jax.debug_callback"(%{{.+}}, %[[T1]])
// CHECK-NEXT: "func.return"
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    %t = "baechi.token"() {effect = "ordered_debug"} : () -> !baechi.token
    %u = "jax.jit"(%x, %t) ({
    ^bb0(%a: tensor<f32>, %s: !baechi.token):
      %1 = "jax.debug_callback"(%a, %s) : (tensor<f32>, !baechi.token) -> !baechi.token
      "baechi.yield"(%1) : (!baechi.token) -> ()
    }) : (tensor<f32>, !baechi.token) -> !baechi.token
    %v = "jax.debug_callback"(%x, %u) : (tensor<f32>, !baechi.token) -> !baechi.token
    "func.return"(%x) : (tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>} : () -> ()
}) : () -> ()
