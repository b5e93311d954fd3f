// SPDX-License-Identifier: MPL-2.0

package apiserver_test

import (
	"bufio"
	"bytes"
	"context"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/apiserver"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/ports"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

// terminal runs kubectl against a cluster in real time.
type terminal struct {
	*testing.T
	cluster *ports.Cluster
	program string
	options []string
}

func newTerminal(t *testing.T) *terminal {
	t.Helper()

	toolchain.NeedKubernetes(t)

	// If kubectl has not been built yet, that takes minutes.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()

	program, err := toolchain.Kubectl(ctx, toolchain.Options{Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	cluster, err := ports.New(model.Options{ControlPlanes: 1, Workers: 2, Talos: "1.13.2", Kubernetes: "1.35.2", Seed: 1})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(cluster.Stop)

	if err := cluster.Bootstrap(); err != nil {
		t.Fatal(err)
	}

	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "memory" }, Transport: cluster.TransportOfPerson(), FlushInterval: -1,
	})
	t.Cleanup(front.Close)

	return &terminal{
		T: t, cluster: cluster, program: program,
		options: []string{"--server", front.URL, "--kubeconfig", os.DevNull, "--cache-dir", t.TempDir(), "--request-timeout", "20s"},
	}
}

// kubectl returns what kubectl prints, with single spaces.
func (c *terminal) kubectl(args ...string) string {
	c.Helper()

	var out, failed bytes.Buffer

	command := exec.CommandContext(c.Context(), c.program, append(c.options, args...)...)
	command.Stdout, command.Stderr = &out, &failed

	if err := command.Run(); err != nil {
		c.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, &out, &failed)
	}

	// If there is nothing to list, kubectl says so on stderr.
	if out.Len() == 0 {
		out = failed
	}

	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	for i := range lines {
		lines[i] = strings.Join(strings.Fields(lines[i]), " ")
	}

	return strings.Join(lines, "\n")
}

// apply runs kubectl apply with an object; an unknown field is an error.
func (c *terminal) apply(object string, options ...string) {
	c.Helper()

	name := filepath.Join(c.TempDir(), "object.yaml")
	if err := os.WriteFile(name, []byte(object), 0o600); err != nil {
		c.Fatal(err)
	}

	c.kubectl(append([]string{"apply", "-f", name}, options...)...)
}

// expect compares what kubectl prints, ignoring ages.
func (c *terminal) expect(want string, args ...string) {
	c.Helper()

	ages := regexp.MustCompile(`(^|\s)\d+s(\s|$)`)

	lines := strings.Split(c.kubectl(args...), "\n")
	for i := range lines {
		lines[i] = strings.TrimSpace(ages.ReplaceAllString(lines[i], "${1}AGE$2"))
	}

	if got := strings.Join(lines, "\n"); got != strings.ReplaceAll(strings.TrimSpace(want), "\t", "") {
		c.Errorf("kubectl %s:\n%s\nwant:\n%s", strings.Join(args, " "), got, want)
	}
}

func TestKubectl_PrintsWhatPeopleLookFor(t *testing.T) {
	c := newTerminal(t)
	c.cluster.AddApp("web", 2, &apiserver.Budget{MinAvailable: 1})

	c.expect(`NAME STATUS ROLES AGE VERSION
		cp-0 Ready control-plane AGE v1.35.2
		worker-0 Ready <none> AGE v1.35.2
		worker-1 Ready <none> AGE v1.35.2`, "get", "no")
	c.expect(`NAME STATUS ROLES AGE VERSION INTERNAL-IP EXTERNAL-IP OS-IMAGE
		cp-0 Ready control-plane AGE v1.35.2 10.5.0.2 <none> Talos (v1.13.2)`, "get", "node", "cp-0", "-o", "wide")
	c.expect(`NAMESPACE NAME READY STATUS RESTARTS AGE IP NODE
		kube-system kube-apiserver-cp-0 1/1 Running 0 AGE <none> cp-0`, "get", "po", "-A", "-o", "wide", "--field-selector", "metadata.name=kube-apiserver-cp-0")
	c.expect(`pod/web-1
		pod/web-2`, "-n", "workload", "get", "pods", "-l", "app=web", "-o", "name")
	c.expect(`NAME AGE
		web AGE`, "-n", "workload", "get", "pdb")
	c.expect(`NAME READY UP-TO-DATE AVAILABLE AGE
		coredns 2/2 2 2 AGE`, "-n", "kube-system", "get", "deploy")
	c.expect(`NAME DESIRED CURRENT READY UP-TO-DATE AVAILABLE NODE SELECTOR AGE
		kube-proxy 3 3 3 3 3 <none> AGE`, "-n", "kube-system", "get", "ds")
	c.expect("ok", "get", "--raw=/readyz")

	if told := c.kubectl("describe", "node", "worker-0"); !strings.Contains(told, "Kubelet Version: v1.35.2") {
		t.Errorf("kubectl describe node:\n%s", told)
	}

	c.kubectl("-n", "kube-system", "create", "configmap", "two", "--from-literal=a=1", "--from-literal=b=2")
	c.expect(`NAME DATA AGE
		two 2 AGE`, "-n", "kube-system", "get", "cm", "two")
}

// The documentation tells people to suspend upgrades this way.
func TestKubectl_SuspendsAndResumesUpgrades(t *testing.T) {
	c := newTerminal(t)

	if err := c.cluster.HoldLease("run-1"); err != nil {
		t.Fatal(err)
	}

	c.kubectl("-n", "kube-system", "annotate", "lease", "talosupgrade", "upgrade.vitistack.io/suspend=ola: storage is degraded")

	if lease := c.cluster.Lease(); lease.Suspended == nil || lease.Suspended.Reason != "ola: storage is degraded" || lease.Suspended.By != "kubectl-annotate" {
		t.Errorf("the lease says %+v", lease.Suspended)
	}

	c.expect(`NAME HOLDER AGE
		talosupgrade run-1 AGE`, "-n", "kube-system", "get", "lease")
	c.kubectl("-n", "kube-system", "annotate", "lease", "talosupgrade", "upgrade.vitistack.io/suspend-")

	if lease := c.cluster.Lease(); lease.Suspended != nil || lease.Holder != "run-1" {
		t.Errorf("the lease says %+v", lease)
	}
}

// follow returns the lines that kubectl prints from now on, until the test ends.
func (c *terminal) follow(args ...string) *bufio.Scanner {
	c.Helper()

	// A watch has no request timeout.
	ctx, cancel := context.WithTimeout(c.Context(), time.Minute)
	command := exec.CommandContext(ctx, c.program, append(c.options[:len(c.options)-2:len(c.options)-2], args...)...)

	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}

	if err != nil {
		cancel()
		c.Fatal(err)
	}

	c.Cleanup(func() {
		cancel()

		_ = command.Wait()
	})

	return bufio.NewScanner(out)
}

// The documentation tells people to follow an upgrade this way.
func TestKubectl_FollowsAnUpgrade(t *testing.T) {
	c := newTerminal(t)
	lines := c.follow("-n", "kube-system", "get", "configmaps", "--field-selector", "metadata.name=talosupgrade", "-w",
		"-o", `jsonpath={.metadata.annotations.upgrade\.vitistack\.io/talos-message}{"\n"}`)

	for _, message := range []string{"Upgrading cp-0", "Upgrading worker-0", "Done"} {
		c.cluster.Annotate("run-1", map[string]string{"talos-message": message})

		if !lines.Scan() || lines.Text() != message {
			t.Fatalf("kubectl prints %q, want %q", lines.Text(), message)
		}
	}
}

func TestKubectl_PrintsChangesOfNodes(t *testing.T) {
	c := newTerminal(t)
	// If the node is named, kubectl omits changes from before it watches.
	lines := c.follow("get", "no", "-l", "kubernetes.io/hostname=worker-0", "-w")

	for _, begins := range []string{"NAME ", "worker-0 "} {
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), begins) {
			t.Fatalf("kubectl prints %q, want %q first", lines.Text(), begins)
		}
	}

	if err := c.cluster.CordonAsPerson("worker-0", true); err != nil {
		t.Fatal(err)
	}

	if !lines.Scan() || strings.Fields(lines.Text())[1] != "Ready,SchedulingDisabled" {
		t.Errorf("kubectl prints %q", lines.Text())
	}
}

func TestKubectl_DrainsANodeAndTakesItBack(t *testing.T) {
	c := newTerminal(t)
	c.cluster.AddPod("web", "worker-0", nil)

	c.kubectl("drain", "worker-0", "--ignore-daemonsets")
	c.expect("No resources found in workload namespace.", "-n", "workload", "get", "pods")
	c.expect(`NAME STATUS ROLES AGE VERSION
		worker-0 Ready,SchedulingDisabled <none> AGE v1.35.2`, "get", "node", "worker-0")

	c.kubectl("uncordon", "worker-0")

	if cordons := c.cluster.Cordons(); cordons["worker-0"].Unschedulable {
		t.Errorf("cordons: %+v", cordons)
	}

	c.kubectl("wait", "--for=condition=Ready", "node/worker-0", "--timeout=10s")
	c.kubectl("delete", "node", "worker-0")
	c.expect(`node/cp-0
		node/worker-1`, "get", "nodes", "-o", "name")
}

func TestKubectl_PatchesInEveryWay(t *testing.T) {
	c := newTerminal(t)
	c.kubectl("-n", "kube-system", "create", "configmap", "patched", "--from-literal=a=1")

	patch := func(kind, text string) {
		c.kubectl("-n", "kube-system", "patch", "cm", "patched", "--type", kind, "-p", text)
	}

	patch("strategic", `{"data":{"b":"2"},"metadata":{"finalizers":["example.org/a"]}}`)
	patch("strategic", `{"metadata":{"finalizers":["example.org/b"]}}`)
	patch("merge", `{"data":{"c":"3"}}`)
	patch("json", `[{"op":"remove","path":"/data/a"}]`)
	c.expect(`{"b":"2","c":"3"} ["example.org/b","example.org/a"]`,
		"-n", "kube-system", "get", "cm", "patched", "-o", "jsonpath={.data} {.metadata.finalizers}")

	// This is how the documentation does it: from a file.
	c.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: applied, namespace: kube-system}, data: {a: "1", b: "2"}}`)
	c.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: applied, namespace: kube-system}, data: {a: "3"}}`)
	c.apply(`{apiVersion: v1, kind: ConfigMap, metadata: {name: applied, namespace: kube-system}, data: {a: "4"}}`, "--server-side", "--force-conflicts")
	c.expect(`{"a":"4"}`, "-n", "kube-system", "get", "cm", "applied", "-o", "jsonpath={.data}")

	c.kubectl("label", "node", "worker-0", "example.org/pool=a")
	c.expect("node/worker-0", "get", "nodes", "-l", "example.org/pool=a", "-o", "name")
}
