// RUN: baechi-opt %s --pass-pipeline='analyze-axis{inputs=[x] axis=-1}' | filecheck %s
// RUN: baechi-opt %s --pass-pipeline='analyze-axis{inputs=[x] axis=1 combine=true}' | filecheck %s --check-prefix=COMBINE
// RUN: baechi-opt %s --pass-pipeline='analyze-axis{inputs=[x] axis=1 combine=true},analyze-axis{inputs=[y] axis=0}' | filecheck %s --check-prefix=AGAIN

// The square root of a sum over the pieces is no sum of square roots; once combined it is full.
// CHECK:        "jax.sqrt"(%{{.+}}) {baechi.axis = ["neither"], baechi.axis_reason = "of a partial sum is no partial sum"}
// CHECK-NEXT:   "jax.div"(%{{.+}}, %{{.+}}) {baechi.axis = ["neither"]}
// COMBINE:      "jax.sqrt"(%{{.+}}) {baechi.axis_combines = [0]}
// COMBINE-NEXT: "jax.div"(%{{.+}}, %{{.+}}) {baechi.axis = ["split 1"]}
// An earlier run leaves nothing behind.
// AGAIN-NOT:    baechi.axis_combines
// AGAIN:        arg_attrs = [{}, {baechi.axis = "split 0"}]
// AGAIN-NOT:    res_attrs = [{baechi
"builtin.module"() ({
  "func.func"() ({
  ^bb0(%x: tensor<3x4xf32>, %y: tensor<2xf32>):
    %0 = "jax.mul"(%x, %x) : (tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<3x4xf32>
    %1 = "jax.reduce_sum"(%0) {axes = [0, 1]} : (tensor<3x4xf32>) -> tensor<f32>
    %2 = "jax.sqrt"(%1) : (tensor<f32>) -> tensor<f32>
    %3 = "jax.div"(%x, %2) : (tensor<3x4xf32>, tensor<f32>) -> tensor<3x4xf32>
    "func.return"(%3) : (tensor<3x4xf32>) -> ()
  }) {sym_name = "main", function_type = (tensor<3x4xf32>, tensor<2xf32>) -> tensor<3x4xf32>} : () -> ()
}) : () -> ()
