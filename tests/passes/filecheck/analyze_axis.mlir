// RUN: baechi-opt %s --pass-pipeline='analyze-axis{inputs=[x]}' --split-input-file | filecheck %s

// A dense layer over the batch: rows stay split, the weight's gradient is a partial sum.
// CHECK:      %[[Y:.+]] = "jax.dot_general"(%{{.+}}, %{{.+}}) {{{.*}}baechi.axis = ["split 0"]{{.*}}}
// CHECK-NEXT: %[[S:.+]] = "jax.reduce_sum"(%[[Y]]) {axes = [0, 1], baechi.axis = ["partial sum"]}
// CHECK-NEXT: "jax.dot_general"(%{{.+}}, %[[Y]]) {{{.*}}baechi.axis = ["partial sum"]{{.*}}}
// CHECK-NEXT: "jax.exp"(%[[S]]) {baechi.axis = ["neither"], baechi.axis_reason = "of a partial sum is no partial sum"}
// CHECK-NEXT: "jax.neg"(%{{.+}}) :
// CHECK:      arg_attrs = [{baechi.axis = "split 0"}, {}]
// CHECK-SAME: res_attrs = [{baechi.axis = "partial sum"}, {baechi.axis = "partial sum"}, {baechi.axis = "neither"}, {}]
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4x3xf32>, %w: tensor<3x2xf32>):
    %0 = "jax.dot_general"(%x, %w) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<4x3xf32>, tensor<3x2xf32>) -> tensor<4x2xf32>
    %1 = "jax.reduce_sum"(%0) {axes = [0, 1]} : (tensor<4x2xf32>) -> tensor<f32>
    %2 = "jax.dot_general"(%x, %0) {dimension_numbers = [[[0], [0]], [[], []]]} : (tensor<4x3xf32>, tensor<4x2xf32>) -> tensor<3x2xf32>
    %3 = "jax.exp"(%1) : (tensor<f32>) -> tensor<f32>
    %4 = "jax.neg"(%w) : (tensor<3x2xf32>) -> tensor<3x2xf32>
    "func.return"(%1, %2, %3, %4) : (tensor<f32>, tensor<3x2xf32>, tensor<f32>, tensor<3x2xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4x3xf32>, tensor<3x2xf32>) -> (tensor<f32>, tensor<3x2xf32>, tensor<f32>, tensor<3x2xf32>)} : () -> ()
}) : () -> ()

// -----
// What running on a piece takes: parameters that shrink, full values read in part.
// CHECK:      "jax.broadcast_in_dim"(%{{.+}}) {{{.*}}baechi.axis = ["split 1"], baechi.axis_shrinks = ["shape[1]"]}
// CHECK-NEXT: "jax.add"(%{{.+}}, %{{.+}}) {baechi.axis = ["split 1"], baechi.axis_slices = {{\[\[}}1, 1]]}
// CHECK-NEXT: "func.return"
// CHECK:      baechi.axis_size = 4 : i64
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4xf32>, %y: tensor<2x4xf32>):
    %0 = "jax.broadcast_in_dim"(%x) {shape = [2, 4], broadcast_dimensions = [1]} : (tensor<4xf32>) -> tensor<2x4xf32>
    %1 = "jax.add"(%0, %y) : (tensor<2x4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>
    "func.return"(%1) : (tensor<2x4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>, tensor<2x4xf32>) -> tensor<2x4xf32>} : () -> ()
}) : () -> ()

// -----
// A scan over the axis that gathers its rows.
// CHECK:      "jax.scan"
// CHECK:        "jax.add"(%{{.+}}, %{{.+}}) {baechi.axis = ["running sum"]}
// CHECK:      }) {{{.*}}baechi.axis = ["partial sum", "split 0"], baechi.axis_arguments = {{\[\[}}"running", "each"]], baechi.axis_shrinks = ["length"]}
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<4x2xf32>):
    %0 = "baechi.literal"() {value = 0.0 : f32} : () -> tensor<f32>
    %1 = "jax.broadcast_in_dim"(%0) {shape = [2], broadcast_dimensions = []} : (tensor<f32>) -> tensor<2xf32>
    %2:2 = "jax.scan"(%1, %x) ({
    ^bb0(%c: tensor<2xf32>, %row: tensor<2xf32>):
      %3 = "jax.add"(%c, %row) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      "baechi.yield"(%3, %row) : (tensor<2xf32>, tensor<2xf32>) -> ()
    }) {reverse = false, length = 4 : i64, num_consts = 0 : i64, num_carry = 1 : i64} : (tensor<2xf32>, tensor<4x2xf32>) -> (tensor<2xf32>, tensor<4x2xf32>)
    "func.return"(%2#0, %2#1) : (tensor<2xf32>, tensor<4x2xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4x2xf32>) -> (tensor<2xf32>, tensor<4x2xf32>)} : () -> ()
}) : () -> ()
