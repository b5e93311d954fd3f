// SPDX-License-Identifier: MPL-2.0

//go:build unix

package acceptance

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/history"
)

// TestAccPipelineJob_KilledGoesOn runs what the Job runs, with the permissions of its ServiceAccount. When a Pod is
// stopped, only its first process gets the signal: that is Terraform, which has to end in an orderly way. The next
// Pod has to go on without a manual unlock.
func TestAccPipelineJob_KilledGoesOn(t *testing.T) {
	full(t)

	s := start(t, sim.Options{ControlPlanes: 1, Workers: 1, Talos: talosModern, Pods: 1, Management: true, Speed: cancelSpeed})
	configuration := &workspace{t: t, dir: t.TempDir()}

	for _, dir := range []string{"talos", "in-cluster"} {
		if err := os.CopyFS(configuration.dir, os.DirFS(filepath.Join(pipelines(), dir))); err != nil {
			t.Fatal(err)
		}
	}

	configuration.edit("main.tf", `backend "http" {}`, "")
	configuration.edit("backend.tf", "in_cluster_config = true", "in_cluster_config = false")
	configuration.edit("main.tf", `"0 22 * * 0-4"`, `"0 * * * *"`)

	containers, _ := within(documents(t, filepath.Join(pipelines(), "in-cluster", "job.yaml"))[0], "spec", "template", "spec", "containers").([]any)
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}

	args, _ := within(containers[0], "args").([]any)
	script := strings.ReplaceAll(fmt.Sprint(args...), "/configuration/", configuration.dir+"/")

	access := s.asServiceAccount(newKubectl(t, s.ManagementKubeconfig()))

	// Each Pod has an empty directory.
	pod := func() *workspace {
		w := newWorkspace(t, fmt.Sprintf("%s=%d", serveVariable, cancelSpeed))
		w.env = append(w.env, before(tools(t, map[string]string{"terraform": w.command})), "TF_CLI_CONFIG_FILE="+installable(t),
			"HOME="+w.dir, "TF_IN_AUTOMATION=true", "TALOSCONFIG="+s.Talosconfig(), "KUBE_CONFIG_PATH="+access)
		w.command = "/bin/sh"

		return w
	}

	locking := pod()
	locking.dir, locking.command = configuration.dir, command(t).Path
	locking.run("init", "-backend=false").mustSucceed(0)

	s.forget()

	run := pod().background("-ec", script)
	s.await("the first node going down", turn(history.KindDown, "", ""))

	if err := run.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}

	if killed := run.wait(); killed.exit == 0 || !strings.Contains(killed.output, "cancelled") {
		t.Fatalf("exit code %d, want that of a run that was cancelled\n%s", killed.exit, killed.output)
	}

	run.providersGone()

	pod().run("-ec", script).mustSucceed(0)
	s.wantUpgraded(talosTarget, nil)
	s.times(once(1, 1))
	s.wantKubernetes(kubernetesTarget)
}
