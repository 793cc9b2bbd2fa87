// RUN: baechi-opt %s --pass-pipeline=split-conds{min-bytes=0} --split-input-file | filecheck %s

// Two results that share nothing become two conditionals, each with what it reads. The first branch
// gives its second result from an operand; the scalar of the first is made in its own part.
// CHECK:      ^bb0(%[[I:.+]]: tensor<i32>, %[[X:.+]]: tensor<128xf32>, %[[Y:.+]]: tensor<128xf32>):
// CHECK-NEXT: %[[A:.+]] = "jax.cond"(%[[I]], %[[X]]) ({
// CHECK-NEXT: ^bb0(%[[X0:.+]]: tensor<128xf32>):
// CHECK-NEXT:   %[[S:.+]] = "jax.sin"(%[[X0]])
// CHECK-NEXT:   "baechi.yield"(%[[S]])
// CHECK:      ^bb0(%[[X1:.+]]: tensor<128xf32>):
// CHECK-NEXT:   "baechi.yield"(%[[X1]])
// CHECK:      %[[B:.+]] = "jax.cond"(%[[I]], %[[Y]]) ({
// CHECK:        "jax.cos"
// CHECK:      "func.return"(%[[A]], %[[B]])
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%i: tensor<i32>, %x: tensor<128xf32>, %y: tensor<128xf32>):
    %0:2 = "jax.cond"(%i, %x, %y) ({
    ^bb0(%a: tensor<128xf32>, %b: tensor<128xf32>):
      %1 = "jax.sin"(%a) : (tensor<128xf32>) -> tensor<128xf32>
      "baechi.yield"(%1, %b) : (tensor<128xf32>, tensor<128xf32>) -> ()
    }, {
    ^bb0(%a: tensor<128xf32>, %b: tensor<128xf32>):
      %2 = "jax.cos"(%b) : (tensor<128xf32>) -> tensor<128xf32>
      "baechi.yield"(%a, %2) : (tensor<128xf32>, tensor<128xf32>) -> ()
    }) {baechi.regions = ["branches[0]", "branches[1]"]} : (tensor<i32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>)
    "func.return"(%0#0, %0#1) : (tensor<128xf32>, tensor<128xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<i32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>)} : () -> ()
}) : () -> ()

// -----
// A sum that both results read is given by the part that makes it; where there is none it is zero.
// CHECK:      ^bb0(%[[I:.+]]: tensor<i32>, %[[X:.+]]: tensor<128xf32>, %[[Y:.+]]: tensor<128xf32>):
// CHECK-NEXT: %[[SUM:.+]] = "jax.cond"(%[[I]], %[[X]]) ({
// CHECK:        "jax.reduce_sum"
// CHECK:        %[[ZERO:.+]] = "baechi.literal"() {value = 0.0 : f32}
// CHECK-NEXT:   "baechi.yield"(%[[ZERO]])
// CHECK:      "jax.cond"(%[[I]], %[[X]], %[[SUM]])
// CHECK:        "jax.mul"
// CHECK:      "jax.cond"(%[[I]], %[[Y]], %[[SUM]])
// CHECK:        "jax.mul"
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%i: tensor<i32>, %x: tensor<128xf32>, %y: tensor<128xf32>):
    %0:2 = "jax.cond"(%i, %x, %y) ({
    ^bb0(%a: tensor<128xf32>, %b: tensor<128xf32>):
      %s = "jax.reduce_sum"(%a) {axes = [0]} : (tensor<128xf32>) -> tensor<f32>
      %1 = "jax.mul"(%a, %s) : (tensor<128xf32>, tensor<f32>) -> tensor<128xf32>
      %2 = "jax.mul"(%b, %s) : (tensor<128xf32>, tensor<f32>) -> tensor<128xf32>
      "baechi.yield"(%1, %2) : (tensor<128xf32>, tensor<128xf32>) -> ()
    }, {
    ^bb0(%a: tensor<128xf32>, %b: tensor<128xf32>):
      "baechi.yield"(%a, %b) : (tensor<128xf32>, tensor<128xf32>) -> ()
    }) {baechi.regions = ["branches[0]", "branches[1]"]} : (tensor<i32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>)
    "func.return"(%0#0, %0#1) : (tensor<128xf32>, tensor<128xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<i32>, tensor<128xf32>, tensor<128xf32>) -> (tensor<128xf32>, tensor<128xf32>)} : () -> ()
}) : () -> ()

// -----
// A conditional on a constant is its branch; the last one for a number that has none.
// CHECK-NOT: jax.cond
// CHECK:     "jax.cos"
// CHECK-NOT: jax.sin
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<128xf32>):
    %i = "baechi.literal"() {value = -1 : i32} : () -> tensor<i32>
    %0 = "jax.cond"(%i, %x) ({
    ^bb0(%a: tensor<128xf32>):
      %1 = "jax.sin"(%a) : (tensor<128xf32>) -> tensor<128xf32>
      "baechi.yield"(%1) : (tensor<128xf32>) -> ()
    }, {
    ^bb0(%a: tensor<128xf32>):
      %2 = "jax.cos"(%a) : (tensor<128xf32>) -> tensor<128xf32>
      "baechi.yield"(%2) : (tensor<128xf32>) -> ()
    }) {baechi.regions = ["branches[0]", "branches[1]"]} : (tensor<i32>, tensor<128xf32>) -> tensor<128xf32>
    "func.return"(%0) : (tensor<128xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<128xf32>) -> tensor<128xf32>} : () -> ()
}) : () -> ()
