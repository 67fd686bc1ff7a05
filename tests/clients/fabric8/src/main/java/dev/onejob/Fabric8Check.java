package dev.onejob;

import io.fabric8.kubernetes.api.model.Pod;
import io.fabric8.kubernetes.api.model.PodBuilder;
import io.fabric8.kubernetes.api.model.batch.v1.Job;
import io.fabric8.kubernetes.api.model.batch.v1.JobBuilder;
import io.fabric8.kubernetes.client.KubernetesClient;
import io.fabric8.kubernetes.client.KubernetesClientBuilder;
import io.fabric8.kubernetes.client.dsl.ExecWatch;
import io.fabric8.kubernetes.client.dsl.LogWatch;
import io.fabric8.kubernetes.client.dsl.base.PatchContext;
import io.fabric8.kubernetes.client.dsl.base.PatchType;
import io.fabric8.kubernetes.client.informers.ResourceEventHandler;
import io.fabric8.kubernetes.client.informers.SharedIndexInformer;
import java.io.ByteArrayOutputStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

/** Uses the features of fabric8's client that open WebSockets. Ends with 1 if one of them fails. */
public final class Fabric8Check {
  private static final String NAMESPACE = "default";
  private static final long PATIENCE_SECONDS = 120;

  private interface Check {
    void run(KubernetesClient client) throws Exception;
  }

  public static void main(String[] arguments) {
    Map<String, Check> checks = new LinkedHashMap<>();
    checks.put("informer", Fabric8Check::informer);
    checks.put("waitUntilCondition", Fabric8Check::waitUntilCondition);
    checks.put("exec", Fabric8Check::exec);
    checks.put("watchLog", Fabric8Check::watchLog);
    boolean failed = false;
    try (KubernetesClient client = new KubernetesClientBuilder().build()) {
      for (Map.Entry<String, Check> check : checks.entrySet()) {
        long start = System.nanoTime();
        try {
          check.getValue().run(client);
          long milliseconds = (System.nanoTime() - start) / 1_000_000;
          System.out.println("ok " + check.getKey() + " after " + milliseconds + " ms");
        } catch (Exception | AssertionError error) {
          failed = true;
          System.out.println("FAILED " + check.getKey() + ": " + error);
          error.printStackTrace();
        }
      }
    }
    System.exit(failed ? 1 : 0);
  }

  private static void informer(KubernetesClient client) throws Exception {
    CountDownLatch added = new CountDownLatch(1);
    CountDownLatch updated = new CountDownLatch(1);
    CountDownLatch deleted = new CountDownLatch(1);
    ResourceEventHandler<Job> handler =
        new ResourceEventHandler<>() {
          @Override
          public void onAdd(Job job) {
            added.countDown();
          }

          @Override
          public void onUpdate(Job before, Job after) {
            if ("yes".equals(after.getMetadata().getLabels().get("changed"))) {
              updated.countDown();
            }
          }

          @Override
          public void onDelete(Job job, boolean stateUnknown) {
            deleted.countDown();
          }
        };
    try (SharedIndexInformer<Job> informer =
        client.batch().v1().jobs().inNamespace(NAMESPACE).withLabel("check", "informer")
            .inform(handler)) {
      require(informer.isWatching(), "the informer does not watch");
      Job job = job("informer", "sleep 600");
      client.resource(job).inNamespace(NAMESPACE).create();
      await(added, "onAdd");
      client.batch().v1().jobs().inNamespace(NAMESPACE).withName("informer")
          .patch(
              PatchContext.of(PatchType.JSON_MERGE),
              "{\"metadata\":{\"labels\":{\"changed\":\"yes\"}}}");
      await(updated, "onUpdate");
      client.batch().v1().jobs().inNamespace(NAMESPACE).withName("informer").delete();
      await(deleted, "onDelete");
    }
  }

  private static void waitUntilCondition(KubernetesClient client) {
    client.resource(job("condition", "sleep 1")).inNamespace(NAMESPACE).create();
    Job done =
        client.batch().v1().jobs().inNamespace(NAMESPACE).withName("condition")
            .waitUntilCondition(
                job -> job != null && job.getStatus() != null
                    && Integer.valueOf(1).equals(job.getStatus().getSucceeded()),
                PATIENCE_SECONDS, TimeUnit.SECONDS);
    require(done.getStatus().getCompletionTime() != null, "no completion time");
  }

  private static void exec(KubernetesClient client) throws Exception {
    client.resource(pod("exec", "sleep 600")).inNamespace(NAMESPACE).create();
    client.pods().inNamespace(NAMESPACE).withName("exec")
        .waitUntilReady(PATIENCE_SECONDS, TimeUnit.SECONDS);
    ByteArrayOutputStream out = new ByteArrayOutputStream();
    ByteArrayOutputStream err = new ByteArrayOutputStream();
    try (ExecWatch exec =
        client.pods().inNamespace(NAMESPACE).withName("exec")
            .writingOutput(out).writingError(err)
            .exec("sh", "-c", "echo to-stdout; echo to-stderr >&2; exit 3")) {
      int code = exec.exitCode().get(PATIENCE_SECONDS, TimeUnit.SECONDS);
      require(code == 3, "exit code " + code);
    }
    require(text(out).equals("to-stdout\n"), "stdout: " + text(out));
    require(text(err).equals("to-stderr\n"), "stderr: " + text(err));
    client.pods().inNamespace(NAMESPACE).withName("exec").withGracePeriod(0).delete();
  }

  private static void watchLog(KubernetesClient client) throws Exception {
    client.resource(pod("log", "for n in 1 2 3; do echo line $n; sleep 0.3; done"))
        .inNamespace(NAMESPACE).create();
    client.pods().inNamespace(NAMESPACE).withName("log")
        .waitUntilCondition(
            pod -> pod != null && !"Pending".equals(pod.getStatus().getPhase()),
            PATIENCE_SECONDS, TimeUnit.SECONDS);
    try (LogWatch log = client.pods().inNamespace(NAMESPACE).withName("log").watchLog()) {
      String read = new String(log.getOutput().readAllBytes(), StandardCharsets.UTF_8);
      require(read.equals("line 1\nline 2\nline 3\n"), "log: " + read);
    }
  }

  private static Job job(String name, String script) {
    return new JobBuilder()
        .withNewMetadata().withName(name).addToLabels("check", name).endMetadata()
        .withNewSpec().withNewTemplate().withNewSpec().withRestartPolicy("Never")
        .addNewContainer().withName("c").withImage("none").withCommand("sh", "-c", script)
        .endContainer().endSpec().endTemplate().endSpec()
        .build();
  }

  private static Pod pod(String name, String script) {
    return new PodBuilder()
        .withNewMetadata().withName(name).endMetadata()
        .withNewSpec().withRestartPolicy("Never")
        .addNewContainer().withName("c").withImage("none").withCommand("sh", "-c", script)
        .endContainer().endSpec()
        .build();
  }

  private static String text(ByteArrayOutputStream stream) {
    return stream.toString(StandardCharsets.UTF_8);
  }

  private static void await(CountDownLatch latch, String name) throws InterruptedException {
    require(latch.await(PATIENCE_SECONDS, TimeUnit.SECONDS), name + " was not called");
  }

  private static void require(boolean holds, String message) {
    if (!holds) {
      throw new AssertionError(message);
    }
  }
}
