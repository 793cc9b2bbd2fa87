// RUN: baechi-opt %s --pass-pipeline=colocate --split-input-file | filecheck %s

// State: the parameter, its momentum, their updates, the last operation of the gradient, and the
// operations that read the parameter, forward and backward. The learning rate binds nobody.
// The whole function, in order.
// CHECK: "jax.dot_general"{{.*}}baechi.group = "w"{{.*}}jvp()
// CHECK: "jax.sin"(%{{.+}}) : (tensor<4x8xf32>)
// CHECK: "jax.dot_general"{{.*}}baechi.group = "w"{{.*}}transpose
// CHECK: "jax.transpose"{{.*}}baechi.group = "w"
// CHECK: "jax.add"{{.*}}baechi.group = "w"
// CHECK: "jax.mul"{{.*}}baechi.group = "w"
// CHECK: "jax.sub"{{.*}}baechi.group = "w"
// CHECK: arg_attrs = [{baechi.name = "w", baechi.state = 0 : i64, baechi.group = "w"}
// CHECK-SAME: {baechi.name = "m", baechi.state = 1 : i64, baechi.group = "w"}
// CHECK-SAME: {baechi.name = "lr"}
// What joined them is left for whoever asks.
// CHECK: baechi.colocation = [{group = "w", rules = ["state", "readers"], arguments = [0, 1, 2]}]
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w: tensor<8x8xf32>, %m: tensor<8x8xf32>, %x: tensor<4x8xf32>, %lr: tensor<f32>):
    %0 = "jax.dot_general"(%x, %w) {dimension_numbers = [[[1], [0]], [[], []]]} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("jvp()"("f.py":1:1))
    %1 = "jax.sin"(%0) : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("jvp()"("f.py":2:1))
    %2 = "jax.dot_general"(%1, %x) {dimension_numbers = [[[0], [0]], [[], []]]} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> loc("transpose(jvp())"("f.py":1:1))
    %3 = "jax.transpose"(%2) {permutation = [1, 0]} : (tensor<8x8xf32>) -> tensor<8x8xf32> loc("transpose(jvp())"("f.py":1:1))
    %4 = "jax.add"(%m, %3) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("f.py":9:1)
    %5 = "jax.mul"(%4, %lr) : (tensor<8x8xf32>, tensor<f32>) -> tensor<8x8xf32> loc("f.py":9:2)
    %6 = "jax.sub"(%w, %5) : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32> loc("f.py":9:3)
    "func.return"(%6, %4) : (tensor<8x8xf32>, tensor<8x8xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<8x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>, tensor<f32>) -> (tensor<8x8xf32>, tensor<8x8xf32>), arg_attrs = [{baechi.name = "w", baechi.state = 0 : i64}, {baechi.name = "m", baechi.state = 1 : i64}, {baechi.name = "x"}, {baechi.name = "lr"}]} : () -> ()
}) : () -> ()

// -----
// Two layers on the same source line. What layer 2's backward reads from layer 1 is a mere
// residual: the layers stay apart. Each backward operation goes to its own layer.
// CHECK: "jax.dot_general"{{.*}}baechi.group = "w1"{{.*}}"jvp()"
// CHECK: "jax.tanh"{{.*}}baechi.group = "[[T1:[^"]+]]"{{.*}}"jvp()"
// CHECK: "jax.dot_general"{{.*}}baechi.group = "w2"{{.*}}"jvp()"
// CHECK: "jax.tanh"{{.*}}baechi.group = "[[T2:[^"]+]]"{{.*}}"jvp()"
// CHECK: "jax.mul"{{.*}}baechi.group = "[[T2]]"{{.*}}transpose
// CHECK: "jax.dot_general"{{.*}}baechi.group = "w2"{{.*}}transpose
// CHECK: "jax.mul"{{.*}}baechi.group = "[[T1]]"{{.*}}transpose
// CHECK: "jax.dot_general"{{.*}}baechi.group = "w1"{{.*}}transpose
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%w1: tensor<8x8xf32>, %w2: tensor<8x8xf32>, %x: tensor<4x8xf32>, %g: tensor<4x8xf32>):
    %0 = "jax.dot_general"(%x, %w1) {dimension_numbers = [[[1], [0]], [[], []]], p = 1 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("jvp()"("f.py":1:9))
    %1 = "jax.tanh"(%0) {p = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("jvp()"("f.py":1:1))
    %2 = "jax.dot_general"(%1, %w2) {dimension_numbers = [[[1], [0]], [[], []]], p = 1 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("jvp()"("f.py":1:9))
    %3 = "jax.tanh"(%2) {p = 1 : i64} : (tensor<4x8xf32>) -> tensor<4x8xf32> loc("jvp()"("f.py":1:1))
    %4 = "jax.mul"(%g, %3) {p = 1 : i64} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("transpose(jvp())"("f.py":1:1))
    %5 = "jax.dot_general"(%4, %1) {dimension_numbers = [[[0], [0]], [[], []]], p = 1 : i64} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> loc("transpose(jvp())"("f.py":1:9))
    %6 = "jax.dot_general"(%4, %w2) {dimension_numbers = [[[1], [1]], [[], []]], p = 1 : i64} : (tensor<4x8xf32>, tensor<8x8xf32>) -> tensor<4x8xf32> loc("transpose(jvp())"("f.py":1:9))
    %7 = "jax.mul"(%6, %1) {p = 1 : i64} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32> loc("transpose(jvp())"("f.py":1:1))
    %8 = "jax.dot_general"(%7, %x) {dimension_numbers = [[[0], [0]], [[], []]], p = 1 : i64} : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<8x8xf32> loc("transpose(jvp())"("f.py":1:9))
    "func.return"(%5, %8) : (tensor<8x8xf32>, tensor<8x8xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<8x8xf32>, tensor<8x8xf32>, tensor<4x8xf32>, tensor<4x8xf32>) -> (tensor<8x8xf32>, tensor<8x8xf32>), arg_attrs = [{baechi.name = "w1"}, {baechi.name = "w2"}, {baechi.name = "x"}, {baechi.name = "g"}]} : () -> ()
}) : () -> ()
