// SPDX-License-Identifier: MPL-2.0

package talosapi_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/safe"
	"github.com/cosi-project/runtime/pkg/state"
	"github.com/siderolabs/go-kubernetes/kubernetes/manifests"
	"github.com/siderolabs/go-kubernetes/kubernetes/upgrade"
	clientconfig "github.com/siderolabs/talos/pkg/machinery/client/config"
	"github.com/siderolabs/talos/pkg/machinery/constants"
	"github.com/siderolabs/talos/pkg/machinery/resources/k8s"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/talosapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

func TestConfig_ParsePicksTheContext(t *testing.T) {
	t.Parallel()

	keys := mint(t, time.Now().Add(time.Hour), "os:admin", "os:etcd:backup")
	context := fmt.Sprintf("{endpoints: [10.5.0.2, 10.5.0.3], ca: %s, crt: %s, key: %s}", keys.ca, keys.crt, keys.key)
	two := "context: one\ncontexts:\n  one: " + context + "\n  two: " + context + "\n"

	for name, test := range map[string]struct{ yaml, wanted, want string }{
		"the current one":               {two, "", "one"},
		"the one asked for":             {two, "two", "two"},
		"the only one, without current": {"contexts:\n  only: " + context + "\n", "", "only"},
	} {
		config, err := talosapi.ParseConfig([]byte(test.yaml), test.wanted)
		if err != nil {
			t.Errorf("%s: %v", name, err)

			continue
		}

		if config.Context() != test.want {
			t.Errorf("%s: context %q, want %q", name, config.Context(), test.want)
		}

		if want := []string{"10.5.0.2", "10.5.0.3"}; !slices.Equal(config.Endpoints(), want) {
			t.Errorf("%s: endpoints %v, want %v", name, config.Endpoints(), want)
		}

		if want := []string{"os:admin", "os:etcd:backup"}; !slices.Equal(config.Certificate().Roles(), want) {
			t.Errorf("%s: roles %v, want %v", name, config.Certificate().Roles(), want)
		}
	}
}

func TestConfig_ParseNamesWhatIsWrongAndKeepsSecrets(t *testing.T) {
	t.Parallel()

	keys := mint(t, time.Now().Add(time.Hour), "os:admin")
	other := mint(t, time.Now().Add(time.Hour), "os:admin")
	noPEM := base64.StdEncoding.EncodeToString([]byte("no PEM at all"))

	context := func(endpoints, ca, crt, key string) string {
		return fmt.Sprintf("context: prod\ncontexts:\n  prod: {endpoints: [%s], ca: %q, crt: %q, key: %q}\n  staging: {}\n", endpoints, ca, crt, key)
	}

	proxied := func(proxy string) string {
		return strings.Replace(context("10.5.0.2", keys.ca, keys.crt, keys.key), "endpoints:", fmt.Sprintf("proxy-url: %q, endpoints:", proxy), 1)
	}

	for name, test := range map[string]struct{ yaml, wanted, want string }{
		"malformed proxy":    {proxied("http://admin:s3c/ret@proxy:3128"), "", "proxy-url is neither"},
		"no scheme of proxy": {proxied("admin:s3cret@proxy:3128"), "", "proxy-url is neither"},
		"strange proxy":      {proxied("ftp://admin:s3cret@proxy"), "", "proxy-url is neither"},
		"empty":              {" \n", "", "it is empty"},
		"malformed YAML":     {"contexts: [" + keys.key, "", "malformed YAML"},
		"other YAML":         {"contexts: " + keys.key, "", "malformed YAML"},
		"a kubeconfig":       {"clusters: []\ncontexts: []\nusers: [{name: u, user: {token: " + keys.key + "}}]\n", "", "it is a kubeconfig"},
		"no contexts":        {"context: prod\n", "", "no contexts"},
		"unknown context":    {context("10.5.0.2", keys.ca, keys.crt, keys.key), "nope", `context "nope" does not exist, there are "prod", "staging"`},
		"unknown current":    {"context: gone\ncontexts: {a: {}}\n", "", `current context "gone" does not exist, there are "a"`},
		"ambiguous":          {"contexts: {a: {}, b: {}}\n", "", `there are "a", "b"`},
		"no endpoints":       {context("", keys.ca, keys.crt, keys.key), "", `context "prod": it has no endpoints: list the addresses of the control planes there; in data talos_client_configuration`},
		"malformed endpoint": {context(`"10.5.0.2/x"`, keys.ca, keys.crt, keys.key), "", `endpoint "10.5.0.2/x"`},
		"no ca":              {context("10.5.0.2", "", keys.crt, keys.key), "", `"ca" is missing`},
		"no certificate":     {context("10.5.0.2", keys.ca, "", keys.key), "", `"crt" is missing`},
		"no key":             {context("10.5.0.2", keys.ca, keys.crt, ""), "", `"key" is missing`},
		"ca not base64":      {context("10.5.0.2", "***", keys.crt, keys.key), "", `"ca" is not base64`},
		"ca not PEM":         {context("10.5.0.2", noPEM, keys.crt, keys.key), "", `"ca" holds no PEM certificate`},
		"certificate no PEM": {context("10.5.0.2", keys.ca, noPEM, keys.key), "", `"crt" is not PEM`},
		"key no PEM":         {context("10.5.0.2", keys.ca, keys.crt, noPEM), "", `"key" is not PEM`},
		"key as certificate": {context("10.5.0.2", keys.ca, keys.key, keys.key), "", `"crt" is not a certificate`},
		"foreign key":        {context("10.5.0.2", keys.ca, keys.crt, other.key), "", "do not belong together"},
		"Omni":               {"contexts: {o: {endpoints: [10.5.0.2], auth: {siderov1: {identity: me}}}}\n", "", "Omni"},
	} {
		_, err := talosapi.ParseConfig([]byte(test.yaml), test.wanted)
		if !errors.Is(err, talosapi.ErrConfig) {
			t.Errorf("%s: %v, want ErrConfig", name, err)

			continue
		}

		if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want it to say %q", name, err, test.want)
		}

		for _, secret := range []string{keys.key[:12], other.key[:12], "s3c"} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error shows the beginning of a key or a password", name)
			}
		}
	}

	for _, proxy := range []string{"direct", "http://admin:s3cret@proxy:3128", "https://proxy", "socks5://[fd00::1]:1080"} {
		if _, err := talosapi.ParseConfig([]byte(proxied(proxy)), ""); err != nil {
			t.Errorf("%s: %v", proxy, err)
		}
	}
}

func TestConfig_NeverPrintsItsKey(t *testing.T) {
	t.Parallel()

	keys := mint(t, time.Now().Add(time.Hour), "os:admin")

	config, err := talosapi.ConfigFromParts([]string{"https://cp.example.org", "[fd00::1]:50000", "10.5.0.2"}, keys.ca, keys.crt, keys.key)
	if err != nil {
		t.Fatal(err)
	}

	for _, verb := range []string{"%v", "%+v", "%#v", "%s"} {
		if printed := fmt.Sprintf(verb, config); strings.Contains(printed, keys.key[:12]) || strings.Contains(printed, keys.crt[:12]) {
			t.Errorf("%s prints the credentials", verb)
		}
	}
}

func TestClient_NewDialsNothing(t *testing.T) {
	t.Parallel()

	keys := mint(t, time.Now().Add(time.Hour), "os:admin")

	config, err := talosapi.ConfigFromParts([]string{"10.5.0.2", "10.5.0.3"}, keys.ca, keys.crt, keys.key)
	if err != nil {
		t.Fatal(err)
	}

	client, err := talosapi.New(config, talosapi.Options{DialContext: refuse(t)})
	if err != nil {
		t.Fatal(err)
	}

	if roles := client.Roles(); !slices.Equal(roles, []string{"os:admin"}) {
		t.Errorf("roles %v, want os:admin", roles)
	}

	if err := client.Close(); err != nil {
		t.Error(err)
	}
}

// TestClient_OnlyTheCertificateSignsIn: the way of Omni would start a browser, at an address that the endpoint names.
func TestClient_OnlyTheCertificateSignsIn(t *testing.T) {
	home := t.TempDir()
	t.Setenv(constants.TalosHomeEnvVar, home)

	inBubble(t, model.Options{}, func(r *rig) {
		config := r.changed(func(context *clientconfig.Context) { context.Auth.SideroV1 = &clientconfig.SideroV1{Identity: "me"} })

		client, err := talosapi.New(config, talosapi.Options{DialContext: r.server.Dialer()})
		if err != nil {
			r.Fatal(err)
		}

		defer func() { _ = client.Close() }()

		r.machine(client, cp0)
	})

	if files, err := os.ReadDir(home); err != nil || len(files) > 0 {
		t.Errorf("files of another way to sign in: %v, %v", files, err)
	}
}

func TestClient_UselessCredentialsFailFastAndSayWhy(t *testing.T) {
	for suffix, test := range map[string]struct {
		want error
		says string
	}{
		"-expired": {cluster.ErrCredentials, "the client certificate expired on "},
		"-foreign": {cluster.ErrCredentials, "belongs to another cluster or is out of date"},
		"-dead":    {cluster.ErrUnreachable, "no endpoint of talosconfig context \"talossim-dead\" answered: 10.5.255.254 connection refused"},
		"-worker":  {cluster.ErrDenied, "endpoints must be control planes"},
	} {
		t.Run(suffix, func(t *testing.T) {
			inBubble(t, model.Options{}, func(r *rig) {
				c := r.client(suffix)
				started := time.Now()

				_, err := c.Machine(r.Context(), cp0, nil, cluster.Everything)
				if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
					r.Errorf("observing a node: %v, want %v and %q", err, test.want, test.says)
				}

				if took := time.Since(started); took > 10*time.Second {
					r.Errorf("it took %s", took)
				}

				if err := c.Reboot(r.Context(), cp0, cluster.RebootDefault); !errors.Is(err, test.want) || errors.Is(err, cluster.ErrOutcomeUnknown) {
					r.Errorf("rebooting a node: %v, want %v", err, test.want)
				}
			})
		})
	}
}

func TestClient_WorkerAsEndpointAnswersForItself(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		c := r.client("-worker")

		if _, err := c.Machine(r.Context(), worker0, nil, cluster.Everything); err != nil {
			r.Errorf("the worker about itself: %v", err)
		}

		if id, err := c.ClusterID(r.Context()); err != nil || id == "" {
			r.Errorf("cluster ID: %q, %v", id, err)
		}

		if _, err := c.Kubeconfig(r.Context()); err == nil {
			r.Error("a worker gave a kubeconfig")
		}
	})
}

func TestClient_KubeconfigComesFromTheTalosAPI(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		got, err := r.client("").Kubeconfig(r.Context())
		if err != nil || string(got) != kubeconfig {
			r.Errorf("kubeconfig %q, %v", got, err)
		}
	})
}

// cable is the way to the endpoints whose address has the prefix. It can go silent like a machine without power:
// nothing arrives, and there is no error.
type cable struct {
	prefix string
	dial   func(context.Context, string) (net.Conn, error)
	silent chan struct{}
	cut    sync.Once

	mutex sync.Mutex
	// swallowed are the endpoints to which something was sent without effect.
	swallowed map[string]bool
}

func newCable(prefix string) *cable {
	return &cable{prefix: prefix, silent: make(chan struct{}), swallowed: map[string]bool{}}
}

func (w *cable) dialContext(ctx context.Context, address string) (net.Conn, error) {
	if !strings.HasPrefix(address, w.prefix) {
		return w.dial(ctx, address)
	}

	select {
	case <-w.silent:
		<-ctx.Done()

		return nil, ctx.Err()
	default:
	}

	conn, err := w.dial(ctx, address)

	return &strand{Conn: conn, cable: w, address: address, closed: make(chan struct{})}, err
}

func (w *cable) goSilent() { w.cut.Do(func() { close(w.silent) }) }

type strand struct {
	net.Conn

	cable   *cable
	address string
	closed  chan struct{}
	end     sync.Once
}

func (w *strand) Read(into []byte) (int, error) {
	n, err := w.Conn.Read(into)

	select {
	case <-w.cable.silent:
		<-w.closed

		return 0, net.ErrClosed
	default:
		return n, err
	}
}

func (w *strand) Write(from []byte) (int, error) {
	select {
	case <-w.cable.silent:
		w.cable.mutex.Lock()
		defer w.cable.mutex.Unlock()

		w.cable.swallowed[w.address] = true

		return len(from), nil
	default:
		return w.Conn.Write(from)
	}
}

func (w *strand) Close() error {
	w.end.Do(func() { close(w.closed) })

	return w.Conn.Close()
}

func (r *rig) clientOver(w *cable) *talosapi.Client {
	r.Helper()

	text, err := r.server.Talosconfig()
	if err != nil {
		r.Fatal(err)
	}

	config, err := talosapi.ParseConfig(text, "")
	if err != nil {
		r.Fatal(err)
	}

	w.dial = r.server.Dialer()

	made, err := talosapi.New(config, talosapi.Options{DialContext: w.dialContext})
	if err != nil {
		r.Fatal(err)
	}

	r.Cleanup(func() {
		if err := made.Close(); err != nil {
			r.Error(err)
		}
	})

	return made
}

func TestEndpoint_ThatSwallowsPacketsDelaysNobody(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable(cp0 + ":")
		through.goSilent()

		c := r.clientOver(through)
		started := time.Now()

		r.machine(c, worker0)

		if took := time.Since(started); took > time.Second {
			r.Errorf("the first look took %s", took)
		}
	})
}

func TestEndpoint_ThatLostItsPowerIsLeft(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable(cp0 + ":")
		c := r.clientOver(through)

		// Through cp-0, as long as it lives.
		r.machine(c, worker0)
		through.goSilent()

		started := time.Now()

		r.machine(c, worker0)

		if took := time.Since(started); took > 20*time.Second {
			r.Errorf("it took %s to go another way", took)
		}

		started = time.Now()

		r.machine(c, worker0)

		if took := time.Since(started); took > time.Second {
			r.Errorf("the next look took %s", took)
		}
	})
}

func TestEndpoint_ChangeIsNotRepeatedThroughAnother(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable("")
		c := r.clientOver(through)

		r.machine(c, worker0)
		// Wait for what the connections still report about that.
		synctest.Wait()
		through.goSilent()

		err := c.Reboot(r.Context(), worker0, cluster.RebootDefault)
		if !errors.Is(err, cluster.ErrOutcomeUnknown) {
			r.Errorf("%v, want the outcome to be unknown", err)
		}

		through.mutex.Lock()
		defer through.mutex.Unlock()

		if len(through.swallowed) != 1 {
			r.Errorf("the reboot was asked for through %v, want one endpoint", through.swallowed)
		}
	})
}

func TestClient_MaintenanceModeIsRecognised(t *testing.T) {
	const known, presumed = "of this cluster: it is Talos in maintenance mode (", "it is Talos in maintenance mode, or another machine"

	for name, test := range map[string]struct {
		node, address string
		through       []string
		// only is true if nothing but endpoints can be connected to.
		only bool
		want []error
		says string
	}{
		"of a worker":                            {"worker-0", worker0, []string{cp0, cp1}, false, []error{cluster.ErrUnreachable, cluster.ErrForeign}, known},
		"of a worker that cannot be reached":     {"worker-0", worker0, []string{cp0, cp1}, true, []error{cluster.ErrUnreachable, cluster.ErrForeign}, presumed},
		"of a control plane and the endpoint":    {"cp-0", cp0, []string{cp0}, true, []error{cluster.ErrUnreachable, cluster.ErrForeign}, "the endpoint is in maintenance mode"},
		"of a control plane, through all":        {"cp-0", cp0, []string{cp0, cp1}, true, []error{cluster.ErrUnreachable, cluster.ErrForeign}, known},
		"of the only endpoint, not of the node":  {"cp-0", worker0, []string{cp0}, true, []error{cluster.ErrUnreachable, cluster.ErrForeign}, "the endpoint is in maintenance mode"},
		"of an endpoint, where there is another": {"cp-0", worker0, []string{cp0, cp1}, true, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, model.Options{}, func(r *rig) {
				c := r.over(test.through, func(address string) bool {
					return !test.only || slices.Contains(test.through, strings.TrimSuffix(address, ":50000"))
				})

				before := r.machine(c, test.address)

				r.world.SetFaults([]model.Fault{{Node: test.node, Step: model.StepBoot, Effect: model.EffectMaintenance}})

				if err := r.world.RebootByHand(test.node, model.RebootDefault); err != nil {
					t.Fatal(err)
				}

				r.until(test.node, "in maintenance mode", func(state model.NodeState) bool { return state.Maintenance })
				synctest.Wait()

				// A control plane asks again only after a while.
				time.Sleep(time.Minute)

				_, err := c.Machine(r.Context(), test.address, nil, cluster.Everything)
				for _, want := range test.want {
					if !errors.Is(err, want) {
						t.Errorf("%v, want %v", err, want)
					}
				}

				if len(test.want) == 0 && err != nil || err != nil && !strings.Contains(err.Error(), test.says) {
					t.Errorf("%v, want that it says %q", err, test.says)
				}

				r.world.SetFaults(nil)
				r.until(test.node, "up", isUp)
				time.Sleep(time.Minute)

				if after := r.machine(c, test.address); after.Talos != before.Talos {
					t.Errorf("afterwards it runs %s, want %s", after.Talos, before.Talos)
				}
			})
		})
	}
}

func TestEndpoint_IdentityOfAClusterIsNotForgotten(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		through := newCable("")
		c := r.clientOver(through)

		before, err := c.ClusterID(r.Context())
		if err != nil || before == "" {
			r.Fatalf("cluster ID %q, %v", before, err)
		}

		through.goSilent()

		if after, err := c.ClusterID(r.Context()); err != nil || after != before {
			r.Errorf("cluster ID %q, %v; want %q", after, err, before)
		}
	})
}

// TestSilent_NodeCostsOneTimeout: the node refuses nothing, and a read is given up. A change is tried through each
// endpoint for as long as that dials, and has certainly not reached the node.
func TestSilent_NodeCostsOneTimeout(t *testing.T) {
	inBubble(t, model.Options{Silent: true}, func(r *rig) {
		c := r.client("")

		r.world.SetFaults([]model.Fault{{Node: "worker-0", Step: model.StepObserve, Effect: model.EffectUnreachable}})

		// It falls silent with the first question.
		for _, test := range []struct {
			what string
			most time.Duration
			call func() error
		}{
			{"observe", 11 * time.Second, func() error { _, err := c.Machine(r.Context(), worker0, nil, cluster.Everything); return err }},
			{"vitals", 11 * time.Second, func() error { _, err := c.Vitals(r.Context(), worker0); return err }},
			{"install", 61 * time.Second, func() error { _, err := c.Install(r.Context(), worker0, nextImage); return err }},
			{"reboot", 61 * time.Second, func() error { return c.Reboot(r.Context(), worker0, cluster.RebootDefault) }},
		} {
			// An earlier attempt of an endpoint does not help.
			time.Sleep(time.Minute)

			begun := time.Now()
			err := test.call()

			if took := time.Since(begun); !errors.Is(err, cluster.ErrUnreachable) || errors.Is(err, cluster.ErrOutcomeUnknown) || took > test.most {
				r.Errorf("%s: %v after %s, want it unreachable within %s", test.what, err, took, test.most)
			}
		}
	})
}

// TestSilent_EndpointIsPassedOver: the other endpoints answer, and are asked first from then on.
func TestSilent_EndpointIsPassedOver(t *testing.T) {
	inBubble(t, model.Options{Silent: true}, func(r *rig) {
		r.world.SetFaults([]model.Fault{{Node: "cp-0", Step: model.StepBoot, Effect: model.EffectNeverReturns}})

		if err := r.client("").Reboot(r.Context(), cp0, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("cp-0", "down", isDown)

		c := r.client("")

		for number, most := range []time.Duration{11 * time.Second, time.Second, time.Second} {
			begun := time.Now()

			if _, err := c.Machine(r.Context(), worker0, nil, cluster.Everything); err != nil || time.Since(begun) > most {
				r.Errorf("look %d: %v after %s, want it within %s", number+1, err, time.Since(begun), most)
			}
		}
	})
}

func TestState_ReadsTheResourcesOfOneNode(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		for address, name := range map[string]string{cp1: "cp-1", worker0: "worker-0"} {
			got, err := safe.StateGetByID[*k8s.Nodename](r.Context(), c.State(address), k8s.NodenameID)
			if err != nil || got.TypedSpec().Nodename != name {
				r.Errorf("%s: %v, %v; want the name %s", address, got, err, name)
			}
		}

		list, err := safe.StateListAll[*k8s.Nodename](r.Context(), c.State(cp1))
		if err != nil || list.Len() != 1 {
			r.Errorf("list: %d names, %v; want one", list.Len(), err)
		}

		kubelet, err := safe.StateGetByID[*k8s.KubeletSpec](r.Context(), c.State(worker0), "kubelet")
		if err != nil || kubelet.TypedSpec().Image != oldKubelet {
			r.Errorf("kubelet: %v, %v; want it typed", kubelet, err)
		}
	})
}

// TestState_ServesUpstreamsLibraries: they read through it what Talos renders and what runs.
func TestState_ServesUpstreamsLibraries(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")

		objects, err := manifests.GetBootstrapManifests(r.Context(), c.State(cp1), nil)
		if err != nil || len(objects) == 0 {
			r.Errorf("%d manifests, %v; want some", len(objects), err)
		}

		path, err := upgrade.NewPath("1.34.2", "1.35.0")
		if err != nil {
			r.Fatal(err)
		}

		checks, err := upgrade.NewChecksWithStateProvider(path, func(_ context.Context, node string) (state.State, error) { return c.State(node), nil },
			&rest.Config{Host: "127.0.0.1:1"}, []string{cp0, cp1}, []string{worker0}, r.Logf)
		if err != nil {
			r.Fatal(err)
		}

		if err := checks.Run(r.Context()); err != nil {
			r.Errorf("the checks of an upgrade: %v", err)
		}
	})
}

func TestState_NamesErrorsForBothSides(t *testing.T) {
	inBubble(t, model.Options{Kubernetes: "1.34.2"}, func(r *rig) {
		c := r.client("")
		at := resource.NewMetadata(k8s.NamespaceName, k8s.NodenameType, "nobody", resource.VersionUndefined)

		if _, err := c.State(cp1).Get(r.Context(), at); !state.IsNotFoundError(err) || !errors.Is(err, cluster.ErrNotFound) {
			r.Errorf("a missing resource: %v, want both to know", err)
		}

		at = resource.NewMetadata(k8s.NamespaceName, "Nothings.kubernetes.talos.dev", "nobody", resource.VersionUndefined)

		if _, err := c.State(cp1).List(r.Context(), at); state.IsNotFoundError(err) || !errors.Is(err, cluster.ErrDenied) {
			r.Errorf("an unknown type: %v, want it denied", err)
		}

		if err := c.Reboot(r.Context(), cp1, cluster.RebootDefault); err != nil {
			r.Fatal(err)
		}

		r.until("cp-1", "down", isDown)

		if _, err := c.State(cp1).List(r.Context(), k8s.NewNodename(k8s.NamespaceName, "").Metadata()); !errors.Is(err, cluster.ErrUnreachable) {
			r.Errorf("a node that is down: %v, want it unreachable", err)
		}

		if _, err := c.State(cp0).List(r.Context(), k8s.NewNodename(k8s.NamespaceName, "").Metadata()); err != nil {
			r.Errorf("another node while an endpoint is down: %v", err)
		}
	})
}

func TestState_WritesNothing(t *testing.T) {
	inBubble(t, model.Options{}, func(r *rig) {
		core, name := r.client("").State(cp1), k8s.NewNodename(k8s.NamespaceName, k8s.NodenameID)

		for what, err := range map[string]error{
			"create":           core.Create(r.Context(), name),
			"update":           core.Update(r.Context(), name),
			"destroy":          core.Destroy(r.Context(), name.Metadata()),
			"watch":            core.Watch(r.Context(), name.Metadata(), nil),
			"watch a kind":     core.WatchKind(r.Context(), name.Metadata(), nil),
			"watch aggregated": core.WatchKindAggregated(r.Context(), name.Metadata(), nil),
		} {
			if !state.IsUnsupportedError(err) || !errors.Is(err, cluster.ErrUnsupported) {
				r.Errorf("%s: %v, want it unsupported", what, err)
			}
		}

		if calls := r.log.calls("cp-1"); len(calls) != 0 {
			r.Errorf("the node was called: %v", calls)
		}
	})
}
