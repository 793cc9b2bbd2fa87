// RUN: baechi-opt %s --pass-pipeline=eliminate-dead-code --split-input-file | filecheck %s

// A chain of dead ops goes at once, literals with it; what is read stays, in order.
// CHECK:      ^bb0(%[[X:.+]]: tensor<f32>):
// CHECK-NEXT: %[[ONE:.+]] = "baechi.literal"() {value = 1.0
// CHECK-NEXT: %[[SUM:.+]] = "jax.add"(%[[X]], %[[ONE]])
// CHECK-NEXT: "func.return"(%[[SUM]])
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    %one = "baechi.literal"() {value = 1.0 : f32} : () -> tensor<f32>
    %two = "baechi.literal"() {value = 2.0 : f32} : () -> tensor<f32>
    %0 = "jax.mul"(%x, %two) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %1 = "jax.add"(%x, %one) : (tensor<f32>, tensor<f32>) -> tensor<f32>
    %2:2 = "jax.unknown_thing"(%0, %1) : (tensor<f32>, tensor<f32>) -> (tensor<f32>, tensor<f32>)
    "func.return"(%1) : (tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>} : () -> ()
}) : () -> ()

// -----
// Effects stay, and what they read. A token that nobody threads goes.
// CHECK:      ^bb0(%[[X:.+]]: tensor<f32>):
// CHECK-NEXT: %[[T:.+]] = "baechi.token"() {effect = "debug"}
// CHECK-NEXT: %[[S:.+]] = "jax.sin"(%[[X]])
// CHECK-NEXT: "jax.debug_callback"(%[[S]], %[[T]])
// CHECK-NEXT: "jax.no_results"(%[[X]])
// CHECK-NEXT: "func.return"()
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    %t = "baechi.token"() {effect = "debug"} : () -> !baechi.token
    %u = "baechi.token"() {effect = "io"} : () -> !baechi.token
    %0 = "jax.sin"(%x) : (tensor<f32>) -> tensor<f32>
    %1 = "jax.debug_callback"(%0, %t) : (tensor<f32>, !baechi.token) -> !baechi.token
    "jax.no_results"(%x) : (tensor<f32>) -> ()
    "func.return"() : () -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> ()} : () -> ()
}) : () -> ()

// -----
// A dead loop goes as a whole. In one that is read, dead ops of the body go, and then what only
// they read outside.
// CHECK-NOT: jax.tan
// CHECK:     ^bb0(%[[X:.+]]: tensor<f32>):
// CHECK-NEXT: "jax.scan"(%[[X]]) ({
// CHECK-NEXT: ^bb0(%[[C:.+]]: tensor<f32>):
// CHECK-NEXT:   %[[E:.+]] = "jax.exp"(%[[C]])
// CHECK-NEXT:   "baechi.yield"(%[[E]])
// CHECK-NOT: "jax.scan"
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<f32>):
    %only = "jax.tan"(%x) : (tensor<f32>) -> tensor<f32>
    %0 = "jax.scan"(%x) ({
    ^bb0(%c: tensor<f32>):
      %1 = "jax.exp"(%c) : (tensor<f32>) -> tensor<f32>
      %2 = "jax.tan"(%only) : (tensor<f32>) -> tensor<f32>
      "baechi.yield"(%1) : (tensor<f32>) -> ()
    }) : (tensor<f32>) -> tensor<f32>
    %3 = "jax.scan"(%x) ({
    ^bb0(%c: tensor<f32>):
      "baechi.yield"(%c) : (tensor<f32>) -> ()
    }) : (tensor<f32>) -> tensor<f32>
    "func.return"(%0) : (tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>} : () -> ()
}) : () -> ()

// -----
// Tasks compute; transfers and waits are decisions.
// CHECK-NOT: baechi.task
// CHECK:     "baechi.send"
// CHECK:     "baechi.recv"
// CHECK-NOT: baechi.task
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: !baechi.on<[0], tensor<f32>>):
    %0 = "baechi.send"(%x) {channel = 0 : i64, from = 0 : i64, to = 1 : i64} : (!baechi.on<[0], tensor<f32>>) -> !baechi.in_flight<tensor<f32>>
    %1 = "baechi.recv"(%0) {channel = 0 : i64} : (!baechi.in_flight<tensor<f32>>) -> !baechi.on<[1], tensor<f32>>
    %2 = "baechi.task"(%1) ({
    ^bb0(%a: tensor<f32>):
      %3 = "jax.sin"(%a) : (tensor<f32>) -> tensor<f32>
      "baechi.yield"(%3) : (tensor<f32>) -> ()
    }) {sym_name = "t0", baechi.devices = [1]} : (!baechi.on<[1], tensor<f32>>) -> !baechi.on<[1], tensor<f32>>
    "func.return"(%x) : (!baechi.on<[0], tensor<f32>>) -> ()
  }) {sym_name = "main", function_type = (!baechi.on<[0], tensor<f32>>) -> !baechi.on<[0], tensor<f32>>} : () -> ()
}) : () -> ()
