// RUN: baechi-opt --pass-pipeline='unroll-scans{share=0},eliminate-dead-code' %s | filecheck %s
// RUN: baechi-opt --pass-pipeline='unroll-scans{share=0 iterations=2},eliminate-dead-code' %s | filecheck --check-prefix=TWO %s
// RUN: baechi-opt --pass-pipeline='unroll-scans{longest=2},eliminate-dead-code' %s | filecheck --check-prefix=LEFT %s

// h <- h * w of each layer, the h before it kept; then w <- w - kept, and the largest of all w.

// CHECK:      ^bb0(%h: tensor<4xf32>, %w_0: tensor<1x4xf32>, %w_1: tensor<1x4xf32>, %w_2: tensor<1x4xf32>):
// CHECK-NEXT:   %0 = "jax.squeeze"(%w_0) {dimensions = [0]} : (tensor<1x4xf32>) -> tensor<4xf32> loc("jvp()/w[0]"("train.py":7:2))
// CHECK-NEXT:   %1 = "jax.mul"(%h, %0) : {{.*}} loc("jvp()/w[0]/dense"("train.py":5:4))
// CHECK-NEXT:   %2 = "jax.squeeze"(%w_1)
// CHECK-NEXT:   %3 = "jax.mul"(%1, %2) : {{.*}} loc("jvp()/w[1]/dense"("train.py":5:4))
// CHECK-NEXT:   %4 = "jax.squeeze"(%w_2)
// CHECK-NEXT:   %5 = "jax.mul"(%3, %4) : {{.*}} loc("jvp()/w[2]/dense"("train.py":5:4))
// CHECK-NEXT:   %6 = "jax.reshape"(%h) {new_sizes = [1, 4]} : (tensor<4xf32>) -> tensor<1x4xf32>
// CHECK-NEXT:   %7 = "jax.sub"(%w_0, %6) : (tensor<1x4xf32>, tensor<1x4xf32>) -> tensor<1x4xf32>
// CHECK-NEXT:   %8 = "jax.reshape"(%1)
// CHECK-NEXT:   %9 = "jax.sub"(%w_1, %8)
// CHECK-NEXT:   %10 = "jax.reshape"(%3)
// CHECK-NEXT:   %11 = "jax.sub"(%w_2, %10)
// CHECK-NEXT:   %12 = "jax.reduce_max"(%7)
// CHECK-NEXT:   %13 = "jax.reduce_max"(%9)
// CHECK-NEXT:   %14 = "jax.reduce_max"(%11)
// CHECK-NEXT:   %15 = "jax.max"(%12, %13)
// CHECK-NEXT:   %16 = "jax.max"(%15, %14) : (tensor<f32>, tensor<f32>) -> tensor<f32> loc("train.py":10:2)
// CHECK-NEXT:   "func.return"(%5, %7, %9, %11, %16)
// CHECK:        baechi.name = "w[1:2]", baechi.donated, baechi.state = 2 : i64
// CHECK-SAME:   baechi.piece = {leaf = 1 : i64, start = 1 : i64, size = 1 : i64, length = 3 : i64}
// CHECK-SAME:   res_attrs = [{}, {
// CHECK-SAME:   leaf = 1 : i64, start = 2 : i64, size = 1 : i64, length = 3 : i64}}, {}]

// TWO:      ^bb0(%h: tensor<4xf32>, %w_0: tensor<2x4xf32>, %w_2: tensor<1x4xf32>):
// TWO-NEXT:   %0:2 = "jax.scan"(%h, %w_0) ({
// TWO:        }) {{{.*}}length = 2 : i64{{.*}} : (tensor<4xf32>, tensor<2x4xf32>) -> (tensor<4xf32>, tensor<2x4xf32>) loc("jvp()/w[0:2]"
// TWO-NEXT:   %[[ROW:.*]] = "jax.squeeze"(%w_2)
// TWO-NEXT:   "jax.mul"(%0#0, %[[ROW]])
// TWO-NEXT:   "jax.sub"(%w_0, %0#1)

// LEFT:     ^bb0(%h: tensor<4xf32>, %w: tensor<3x4xf32>):
// LEFT-NEXT:  "jax.scan"(%h, %w)
// LEFT-NOT:   baechi.piece

"builtin.module"() ({
  "func.func"() ({
  ^bb0(%h: tensor<4xf32>, %w: tensor<3x4xf32>):
    %0:2 = "jax.scan"(%h, %w) ({
    ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
      %1 = "jax.mul"(%a, %b) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("dense"("train.py":5:4))
      "baechi.yield"(%1, %a) : (tensor<4xf32>, tensor<4xf32>) -> ()
    }) {length = 3 : i64, num_consts = 0 : i64, num_carry = 1 : i64, reverse = false} : (tensor<4xf32>, tensor<3x4xf32>) -> (tensor<4xf32>, tensor<3x4xf32>) loc("jvp()"("train.py":7:2))
    %2 = "jax.sub"(%w, %0#1) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32> loc("train.py":9:2)
    %3 = "jax.reduce_max"(%2) {axes = [0, 1]} : (tensor<3x4xf32>) -> tensor<f32> loc("train.py":10:2)
    "func.return"(%0#0, %2, %3) : (tensor<4xf32>, tensor<3x4xf32>, tensor<f32>) -> ()
  }) {sym_name = "main", function_type = (tensor<4xf32>, tensor<3x4xf32>) -> (tensor<4xf32>, tensor<3x4xf32>, tensor<f32>), arg_attrs = [{baechi.name = "h"}, {baechi.name = "w", baechi.donated, baechi.state = 1 : i64}]} : () -> ()
}) : () -> ()
