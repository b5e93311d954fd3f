// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// tale is a run with something of everything, told as the engine tells it.
func tale() []cluster.Event {
	target := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2")}
	talos, kubernetes := progress(0, 2, "1.12.6"), progress(0, 2, "1.34.1")
	to := func(event cluster.Event, text string) cluster.Event {
		event.To = version.MustParse(text)

		return event
	}

	return []cluster.Event{
		{Kind: cluster.EventWaiting, Text: "the lease is held by x; watching whether it is still alive"},
		{Kind: cluster.EventRunStarted, Talos: talos, Kubernetes: kubernetes, Target: target},
		to(cluster.Event{Kind: cluster.EventNodeStarted, Node: "worker-0", Talos: talos, Target: target}, "1.13.4"),
		{Kind: cluster.EventNodeStep, Node: "worker-0", Step: cluster.StepPull, Text: "factory/installer:v1.13.4"},
		{Kind: cluster.EventNodeStep, Node: "worker-0", Step: cluster.StepDrain},
		{Kind: cluster.EventWarning, Node: "worker-0", Text: "the drain timed out"},
		{Kind: cluster.EventWarning, Node: "worker-0", Text: "worker-0: one pod is alone"},
		to(cluster.Event{Kind: cluster.EventNodeDone, Node: "worker-0", Target: target}, "1.13.4"),
		to(cluster.Event{Kind: cluster.EventRollingBack, Node: "cp-0", Target: target, Text: "it is not ready\nat all"}, "1.12.6"),
		to(cluster.Event{Kind: cluster.EventNodeStarted, Node: "cp-0", Component: cluster.APIServer, Target: target}, "1.35.2"),
		{Kind: cluster.EventNodeStep, Node: "cp-0", Component: cluster.APIServer, Step: cluster.StepConfigure, Text: "kube-apiserver:v1.35.2"},
		to(cluster.Event{Kind: cluster.EventNodeDone, Node: "cp-0", Component: cluster.APIServer, Target: target}, "1.35.2"),
		{Kind: cluster.EventNodeStarted, Component: cluster.Manifests, Target: target},
		{Kind: cluster.EventNodeStep, Component: cluster.Manifests, Step: cluster.StepApply, Text: "configured DaemonSet kube-system/kube-proxy"},
		{Kind: cluster.EventNodeDone, Component: cluster.Manifests, Target: target},
		{Kind: cluster.EventRunDone, Talos: progress(2, 2, "1.13.4"), Kubernetes: progress(1, 2, "1.34.1"), Target: target},
	}
}

func observe(events *publish.Events, told []cluster.Event) {
	for _, event := range told {
		event.Time = time.Now()
		events.Observe(event)
	}
}

func TestEvent_TellsTheObjectAndTheNodesOfARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{}
		events := events(t, api)

		observe(events, tale())

		if err := events.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		var object, nodes []string

		for _, line := range api.told() {
			if rest, found := strings.CutPrefix(line, "tenant-a prod: "); found {
				object = append(object, rest)
			} else {
				nodes = append(nodes, line)
			}
		}

		compare(t, "about the object", object, []string{
			"Normal Waiting: the lease is held by x; watching whether it is still alive",
			"Normal UpgradeStarted: Upgrade started: Talos 1.12.6 \u2192 1.13.4, Kubernetes 1.34.1 \u2192 1.35.2",
			"Normal NodeUpgradeStarted: Upgrading node worker-0 to Talos 1.13.4",
			"Normal Pulling: worker-0: Pulling the image: factory/installer:v1.13.4",
			"Normal Draining: worker-0: Draining the node",
			"Warning UpgradeWarning: the drain timed out (worker-0)",
			"Warning UpgradeWarning: worker-0: one pod is alone",
			"Normal NodeUpgraded: Node worker-0 upgraded to Talos 1.13.4",
			"Warning RollingBack: Rolling back node cp-0 to Talos 1.12.6: it is not ready",
			"Normal ComponentUpgradeStarted: Upgrading kube-apiserver on cp-0 to 1.35.2",
			"Normal Configuring: cp-0: Changing the machine configuration (kube-apiserver): kube-apiserver:v1.35.2",
			"Normal ComponentUpgraded: kube-apiserver on cp-0 upgraded to 1.35.2",
			"Normal ManifestsStarted: Syncing the bootstrap manifests",
			"Normal ApplyingManifests: Applying the bootstrap manifests: configured DaemonSet kube-system/kube-proxy",
			"Normal ManifestsSynced: Bootstrap manifests synced",
			"Normal UpgradeCompleted: Upgrade completed: now running Talos 1.13.4, 1/2 nodes show Kubernetes 1.35.2 so far",
		})
		compare(t, "about the nodes", nodes, []string{
			"default worker-0: Normal NodeUpgradeStarted: Upgrading the node to Talos 1.13.4",
			"default worker-0: Normal Pulling: Pulling the image: factory/installer:v1.13.4",
			"default worker-0: Normal Draining: Draining the node",
			"default worker-0: Warning UpgradeWarning: the drain timed out",
			"default worker-0: Warning UpgradeWarning: one pod is alone",
			"default worker-0: Normal NodeUpgraded: Node upgraded to Talos 1.13.4",
			"default cp-0: Warning RollingBack: Rolling back to Talos 1.12.6: it is not ready",
			"default cp-0: Normal ComponentUpgradeStarted: Upgrading kube-apiserver to 1.35.2",
			"default cp-0: Normal Configuring: Changing the machine configuration (kube-apiserver): kube-apiserver:v1.35.2",
			"default cp-0: Normal ComponentUpgraded: kube-apiserver upgraded to 1.35.2",
		})

		for _, event := range api.all() {
			if event.Source.Component != "talosupgrade" || event.ReportingController != "talosupgrade" || event.FirstTimestamp.IsZero() {
				t.Errorf("%+v does not say who and when", event)
			}

			if node := event.InvolvedObject; node.Kind == "Node" && (string(node.UID) != node.Name || node.APIVersion != "v1") {
				t.Errorf("a node is named %+v", node)
			}
		}
	})
}

func compare(t *testing.T, what string, got, want []string) {
	t.Helper()

	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			t.Errorf("%s: %q is missing", what, want[i])
		case i >= len(want):
			t.Errorf("%s: %q is too much", what, got[i])
		case got[i] != want[i]:
			t.Errorf("%s:\n got %q\nwant %q", what, got[i], want[i])
		}
	}
}

// TestEvent_NothingIsToldBeforeTheLease, nor of a run that never got it, nor of
// one that has nothing to do.
func TestEvent_NothingIsToldBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := cluster.Event{Kind: cluster.EventRunStarted, Talos: progress(2, 2, "1.13.4"), Target: cluster.Target{Talos: version.MustParse("1.13.4")}}
		over := idle
		over.Kind = cluster.EventRunDone

		for name, told := range map[string][]cluster.Event{
			"never got it":  tale()[:1],
			"lost it":       {{Kind: cluster.EventWarning, Text: "w"}, {Kind: cluster.EventRunLost}, {Kind: cluster.EventRunFailed, Text: "lost"}},
			"nothing to do": {tale()[0], idle, over},
		} {
			api := &eventAPI{}
			events := events(t, api)

			observe(events, told)
			synctest.Wait()

			if err := events.Close(t.Context()); err != nil || api.count() != 0 {
				t.Errorf("%s: %v, %q", name, err, api.told())
			}
		}

		// Of what came before, the newest fifty are told once it has.
		api := &eventAPI{}
		events := events(t, api)

		for i := range 80 {
			events.Observe(cluster.Event{Kind: cluster.EventWarning, Text: fmt.Sprintf("warning %d", i)})
		}

		synctest.Wait()

		if api.count() != 0 {
			t.Errorf("before: %q", api.told())
		}

		events.Observe(cluster.Event{Kind: cluster.EventRunFailed, Node: "cp-0, worker-0", Text: "two nodes are gone"})

		if err := events.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		told := api.told()
		if joined := strings.Join(told, "\n"); !strings.Contains(joined, ": warning 30\n") || strings.Contains(joined, ": warning 29\n") {
			t.Errorf("told %q, want no more than fifty of what came before", told)
		}

		for _, want := range []string{
			"tenant-a prod: Warning UpgradeFailed: Upgrade failed: two nodes are gone",
			"default cp-0: Warning UpgradeFailed: Upgrade failed: two nodes are gone",
			"default worker-0: Warning UpgradeFailed: Upgrade failed: two nodes are gone",
		} {
			if !slices.Contains(told, want) {
				t.Errorf("%q is missing in %q", want, told)
			}
		}
	})
}

// TestEvent_LostRunSaysNothingForAnother: what waits to be written is not, either.
func TestEvent_LostRunSaysNothingForAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{answer: away(time.Now().Add(time.Minute))}
		events := events(t, api)

		observe(events, tale()[:6])
		time.Sleep(10 * time.Second)
		observe(events, []cluster.Event{{Kind: cluster.EventRunLost, Text: "lost"}, {Kind: cluster.EventRunFailed, Text: "late"}})
		synctest.Wait()

		before := api.count()

		time.Sleep(5 * time.Minute)

		if err := events.Close(t.Context()); err != nil || api.count() != before || len(api.told()) != 0 {
			t.Errorf("%d requests after the lease was lost, %q, %v", api.count()-before, api.told(), err)
		}
	})
}

// TestEvent_WaitsDoNotFloodWithNumbers: one Event says what is being waited for, and how
// far it is.
func TestEvent_WaitsDoNotFloodWithNumbers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{}
		events := events(t, api)

		observe(events, tale()[1:2])

		for i := range 120 {
			observe(events, []cluster.Event{
				{Kind: cluster.EventWaiting, Node: "worker-1", Text: fmt.Sprintf("the pods to leave: %d of them are left", 120-i)},
				{Kind: cluster.EventWaiting, Text: "the cluster to be ready for the next node: cp-1 is NotReady"},
			})
			time.Sleep(30 * time.Second)
		}

		if err := events.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		told := api.told()
		if len(told) != 4 {
			t.Errorf("%d Events: %q", len(told), told)
		}

		// An hour of it, three at once and then one each minute, of three waits.
		if requests := api.count(); requests > 3*70 {
			t.Errorf("%d requests", requests)
		}

		newest := slices.ContainsFunc(told, func(line string) bool {
			return strings.HasPrefix(line, "default worker-1: Normal Waiting: the pods to leave: ") && strings.Contains(line, ": 2 of them") || strings.Contains(line, ": 1 of them")
		})
		if !newest {
			t.Errorf("the newest number is missing in %q", told)
		}
	})
}

// TestEvent_ManyOfAKindAreCombined, as the Events of other components are.
func TestEvent_ManyOfAKindAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{}
		events := events(t, api)

		observe(events, tale()[1:2])

		for i := range 60 {
			observe(events, []cluster.Event{{Kind: cluster.EventNodeStep, Node: fmt.Sprintf("worker-%d", i), Step: cluster.StepDrain}})
			time.Sleep(time.Second)
		}

		if err := events.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		var about []string

		for _, line := range api.told() {
			if strings.HasPrefix(line, "tenant-a prod: Normal Draining") {
				about = append(about, line)
			}
		}

		if len(about) != 10 || about[9] != "tenant-a prod: Normal Draining: (combined from similar events): worker-59: Draining the node (x51)" {
			t.Errorf("%d Events about the object: %q", len(about), about)
		}

		if others := len(api.told()) - len(about); others != 1+60 {
			t.Errorf("%d other Events, want the start and one for each node", others)
		}
	})
}

func TestEvent_MessageIsOneShortLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventAPI{}
		events := events(t, api)

		observe(events, []cluster.Event{
			{Kind: cluster.EventRunFailed, Node: "cp-0", Err: errors.New(strings.Repeat("\u00e4\t\xff ", 2000) + "\nsecond line")},
			{Kind: cluster.EventWarning},
		})

		if err := events.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		for _, event := range api.all() {
			if len(event.Message) > 1024-40 || !utf8.ValidString(event.Message) || strings.ContainsAny(event.Message, "\n\t") || strings.Contains(event.Message, "second") {
				t.Errorf("%d bytes: %q", len(event.Message), event.Message)
			}
		}

		if told := api.told(); len(told) != 3 || !strings.HasSuffix(told[0], "\u2026") && !strings.HasSuffix(told[1], "\u2026") {
			t.Errorf("told %q", told)
		}
	})
}

// TestEvent_ObjectIsNamedByItsUID, as soon as somebody has made it and says so.
func TestEvent_ObjectIsNamedByItsUID(t *testing.T) {
	many := func(err error) []error { return slices.Repeat([]error{err}, 100) }

	for name, test := range map[string]struct {
		answers []error
		uid     string
		asked   int
	}{
		"there":             {nil, "uid-of-prod", 1},
		"just being made":   {[]error{cluster.ErrNotFound, cluster.ErrNotFound}, "uid-of-prod", 3},
		"away for a while":  {slices.Repeat([]error{cluster.ErrUnreachable}, 8), "uid-of-prod", 9},
		"never made":        {many(cluster.ErrNotFound), "", 5},
		"not to be read":    {many(cluster.ErrDenied), "", 1},
		"something strange": {many(errDown), "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, access := &eventAPI{}, &objects{answers: test.answers}
				events := publish.NewEvents(publish.EventTargets{Object: sink(t, api), Of: publishedCluster, Access: access})

				observe(events, tale())
				time.Sleep(time.Minute)

				if err := events.Close(t.Context()); err != nil {
					t.Error(err)
				}

				found := api.all()
				if len(found) != 16 || access.asked != test.asked {
					t.Errorf("%d Events, asked %d times", len(found), access.asked)
				}

				for _, event := range found {
					if object := event.InvolvedObject; string(object.UID) != test.uid || object.Kind != "KubernetesCluster" || object.APIVersion != "vitistack.io/v1alpha1" || object.Namespace != "tenant-a" {
						t.Errorf("about %+v, want the UID %q", object, test.uid)
					}
				}
			})
		})
	}
}

// TestEvent_EndOfARunNamesWhatRuns, in one list, and nothing of nodes that are held.
func TestEvent_EndOfARunNamesWhatRuns(t *testing.T) {
	talos, kubernetes := progress(2, 2, "1.13.4"), progress(2, 2, "1.35.2")

	for want, test := range map[string]struct{ talos, kubernetes cluster.Progress }{
		"now running Talos 1.13.4 and Kubernetes 1.35.2":                              {talos, kubernetes},
		"now running Talos 1.13.4, 1/2 nodes show Kubernetes 1.35.2 so far":           {talos, progress(1, 2, "1.34.2")},
		"now running Kubernetes 1.35.2, 1/2 nodes show Talos 1.13.4 so far":           {progress(1, 2, "1.12.6"), kubernetes},
		"1/2 nodes show Talos 1.13.4 so far, 0/2 nodes show Kubernetes 1.35.2 so far": {progress(1, 2, "1.12.6"), progress(0, 2, "1.34.2")},
		"now running Talos 1.13.4":                                                    {talos, cluster.Progress{Managed: true}},
		"nothing is managed":                                                          {},
	} {
		synctest.Test(t, func(t *testing.T) {
			api := &eventAPI{}
			events := events(t, api)

			target := cluster.Target{Talos: version.MustParse("1.13.4"), Kubernetes: version.MustParse("1.35.2")}

			observe(events, []cluster.Event{
				{Kind: cluster.EventRunStarted, Talos: progress(0, 2, "1.12.6"), Target: target},
				{Kind: cluster.EventRunDone, Talos: test.talos, Kubernetes: test.kubernetes, Target: target},
			})

			if err := events.Close(t.Context()); err != nil {
				t.Error(err)
			}

			told := api.told()
			compare(t, want, told[max(len(told)-1, 0):], []string{"tenant-a prod: Normal UpgradeCompleted: Upgrade completed: " + want})
		})
	}
}

// configMaps looks up ConfigMaps in the real API server.
type configMaps struct {
	cluster.ObjectAccess

	client kubernetes.Interface
}

func (c configMaps) Object(ctx context.Context, of cluster.Reference) (map[string]any, error) {
	found, err := c.client.CoreV1().ConfigMaps(of.Namespace).Get(ctx, of.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", cluster.ErrNotFound, err)
	}

	return map[string]any{"metadata": map[string]any{"uid": string(found.UID)}}, nil
}

// liveSink writes Events over the connection of the other client, in the name of
// somebody where one is given.
func liveSink(t *testing.T, other kubernetes.Interface, user string) publish.ObjectCreator {
	t.Helper()

	shared, ok := other.CoreV1().RESTClient().(*rest.RESTClient)
	if !ok {
		t.Fatalf("the connection is a %T", other.CoreV1().RESTClient())
	}

	client := shared.Client
	if user != "" {
		client = &http.Client{Transport: transport.NewImpersonatingRoundTripper(transport.ImpersonationConfig{UserName: user}, client.Transport)}
	}

	server := shared.Get().URL()

	kubeconfig := `{clusters: [{name: a, cluster: {server: "` + server.Scheme + "://" + server.Host + `"}}], contexts: [{name: a, context: {cluster: a}}], current-context: a}`

	made, err := kubeapi.New([]byte(kubeconfig), "", kubeapi.Options{Transport: client.Transport})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(made.Close)

	return made
}

// found are the Events with the reason that the field selector finds, as kubectl
// finds those of an object.
func found(t *testing.T, other kubernetes.Interface, namespace, selector, reason string) []corev1.Event {
	t.Helper()

	list, err := other.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{FieldSelector: selector + ",reason=" + reason})
	if err != nil {
		t.Fatal(err)
	}

	return list.Items
}

func TestEvent_IsAcceptedByARealAPIServer(t *testing.T) {
	_, other := live(t, "cluster-1")

	made, err := other.CoreV1().ConfigMaps("kube-system").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "progress"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	of := cluster.Reference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system", Name: "progress"}

	t.Run("all of them", func(t *testing.T) {
		events := publish.NewEvents(publish.EventTargets{
			Nodes: liveSink(t, other, ""), Object: liveSink(t, other, ""), Of: of, Access: configMaps{client: other},
		})

		observe(events, tale()[:15])

		for i := range 20 {
			observe(events, []cluster.Event{
				{Kind: cluster.EventNodeStep, Node: "worker-0", Step: cluster.StepReboot},
				{Kind: cluster.EventNodeStep, Node: fmt.Sprintf("worker-%d", i), Step: cluster.StepUncordon},
				{Kind: cluster.EventWaiting, Text: fmt.Sprintf("the pods to leave: %d are left", 20-i)},
			})
		}

		observe(events, []cluster.Event{{Kind: cluster.EventWarning, Text: strings.Repeat("very long ", 500)}, tale()[15]})

		if err := events.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		object := "involvedObject.uid=" + string(made.UID)
		node := "involvedObject.kind=Node,involvedObject.name=worker-0,involvedObject.uid=worker-0"

		for reason, want := range map[string]struct {
			about, node int
			count       int32
		}{
			"UpgradeStarted": {1, 0, 1}, "UpgradeCompleted": {1, 0, 1}, "NodeUpgraded": {1, 1, 1}, "RollingBack": {1, 0, 1},
			"Rebooting": {1, 1, 20}, "Uncordoning": {10, 1, 11}, "UpgradeWarning": {3, 2, 1},
		} {
			about, nodes := found(t, other, "kube-system", object, reason), found(t, other, "default", node, reason)
			if len(about) != want.about || len(nodes) != want.node {
				t.Errorf("%s: %d about the object, %d about the node; want %d and %d", reason, len(about), len(nodes), want.about, want.node)

				continue
			}

			most := int32(0)
			for _, event := range about {
				most = max(most, event.Count)
			}

			if most != want.count {
				t.Errorf("%s: counted %d times, want %d", reason, most, want.count)
			}
		}

		for _, event := range found(t, other, "kube-system", object, "Waiting") {
			if strings.Contains(event.Message, "the pods to leave") && event.Count < 2 {
				t.Errorf("%d times %q", event.Count, event.Message)
			}
		}
	})

	t.Run("none of them", func(t *testing.T) {
		nobody := liveSink(t, other, "nobody")
		events := publish.NewEvents(publish.EventTargets{Nodes: nobody, Object: nobody, Of: of, Access: configMaps{client: other}})

		observe(events, tale())

		err := events.Close(t.Context())
		if !errors.Is(err, cluster.ErrDenied) || !strings.Contains(err.Error(), "create events in the namespace kube-system") || !strings.Contains(err.Error(), "create events in the namespace default") {
			t.Errorf("%v, want both permissions missing", err)
		}

		t.Log(err)
	})
}

// TestEvent_ReturnToServiceNamesNoVersion: the node keeps the one that it runs.
func TestEvent_ReturnToServiceNamesNoVersion(t *testing.T) {
	event := cluster.Event{Kind: cluster.EventNodeStarted, Node: "worker-1", To: version.MustParse("1.12.6"), Returns: true}

	if got, want := publish.Text(event), "Returning node worker-1 to service"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
