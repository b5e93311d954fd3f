// SPDX-License-Identifier: MPL-2.0

package publish_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/kubeapi"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/observer/publish"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/protocol"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/toolchain"
)

func TestObject_OnlyOurAnnotationsAreWritten(t *testing.T) {
	shelf := newShelf()
	shelf.annotate(map[string]any{protocol.KeyFailedNodes: "cp-9", "upgrade.vitistack.io/talos-target": "1.13.4"})

	store := publish.NewObjectStore(shelf, published())
	if got := store.String(); got != "KubernetesCluster tenant-a/prod" {
		t.Errorf("it is called %q", got)
	}

	status := "idle"
	if err := store.Patch(t.Context(), map[string]*string{protocol.KeyTalosStatus: &status, protocol.KeyFailedNodes: nil}); err != nil {
		t.Fatal(err)
	}

	const want = ` {"metadata":{"annotations":{"upgrade.vitistack.io/failed-nodes":null,"upgrade.vitistack.io/talos-status":"idle"}}}`
	if len(shelf.calls) != 1 || shelf.calls[0] != want {
		t.Errorf("it sent %q, want %q", shelf.calls, want)
	}

	found, err := store.Read(t.Context())
	if err != nil || len(found) != 3 || found["theirs"] != "yes" || found["upgrade.vitistack.io/talos-target"] != "1.13.4" || found[protocol.KeyTalosStatus] != "idle" {
		t.Errorf("there is %v, %v", found, err)
	}
}

func TestObject_MissingIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		there := shelf.found
		shelf.found = nil

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		publisher.Observe(story()[0])
		time.Sleep(time.Minute)
		synctest.Wait()

		if len(shelf.calls) > 0 {
			t.Errorf("it sent %q", shelf.calls)
		}

		if tries := shelf.reads; tries < 5 || tries > 40 {
			t.Errorf("it looked %d times in a minute, want with a back-off", tries)
		}

		// It may come.
		shelf.mutex.Lock()
		shelf.found = there
		shelf.mutex.Unlock()

		time.Sleep(15 * time.Second)
		synctest.Wait()

		if got := shelf.get(protocol.KeyTalosStatus); got != "in-progress" {
			t.Errorf("status %q of an object that came later", got)
		}

		if got := shelf.status()["phase"]; got != "UpgradingTalos" {
			t.Errorf("phase %v of an object that came later", got)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestObject_PermanentErrorIsSaidSoon: an apply is not held up at its end.
func TestObject_PermanentErrorIsSaidSoon(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(*shelf)
		says  string
	}{
		"no object": {func(s *shelf) { s.found = nil }, "no such object"},
		"no permission": {func(s *shelf) {
			s.answer = func(string) error { return fmt.Errorf("forbidden: %w", cluster.ErrDenied) }
		}, "forbidden"},
		"being deleted": {func(s *shelf) { s.metadata()["deletionTimestamp"] = "2026-01-01T00:00:00Z" }, "being deleted"},
		"no status": {func(s *shelf) {
			s.answer = func(call string) error {
				if call == "patch status" {
					return fmt.Errorf("forbidden: %w", cluster.ErrDenied)
				}

				return nil
			}
		}, "the status of KubernetesCluster tenant-a/prod could not"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shelf := newShelf("phase", "conditions")
				test.spoil(shelf)

				publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
				for _, event := range story() {
					publisher.Observe(event)
				}

				begun := time.Now()
				err := publisher.Close(t.Context())

				if err == nil || !strings.Contains(err.Error(), test.says) || !strings.Contains(err.Error(), published().String()) {
					t.Errorf("closing: %v, want %q", err, test.says)
				}

				if took := time.Since(begun); took > 5*time.Second {
					t.Errorf("it took %s", took)
				}

				if name == "no status" && shelf.get(protocol.KeyTalosStatus) != "completed" {
					t.Error("without a status there are no annotations")
				}
			})
		})
	}
}

func TestObject_BeingDeletedIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		publisher.Observe(story()[0])
		synctest.Wait()
		shelf.write(map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}})

		// With the next heartbeat it is noticed.
		time.Sleep(15 * time.Second)
		synctest.Wait()

		sent := len(shelf.calls)

		publisher.Observe(story()[1])
		time.Sleep(time.Minute)
		synctest.Wait()

		if got := len(shelf.calls); got != sent {
			t.Errorf("it was written %d times more: %q", got-sent, shelf.calls[sent:])
		}

		if err := publisher.Close(t.Context()); err == nil || !strings.Contains(err.Error(), "being deleted") {
			t.Errorf("closing: %v", err)
		}
	})
}

// TestObject_ReplacementIsWritten: it has the name that was asked for.
func TestObject_ReplacementIsWritten(t *testing.T) {
	shelf := newShelf()
	shelf.write(map[string]any{"metadata": map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}})

	store, status := publish.NewObjectStore(shelf, published()), "idle"
	if _, err := store.Read(t.Context()); err == nil {
		t.Error("it was read")
	}

	change := map[string]*string{protocol.KeyTalosStatus: &status}
	if err := store.Patch(t.Context(), change); err == nil || len(shelf.calls) > 0 {
		t.Errorf("it was written: %q, %v", shelf.calls, err)
	}

	shelf.write(map[string]any{"metadata": map[string]any{"deletionTimestamp": nil}})

	if err := store.Patch(t.Context(), change); err != nil || shelf.get(protocol.KeyTalosStatus) != "idle" {
		t.Errorf("the new one: %v", err)
	}
}

// TestObject_StatusOfBuiltInKindsIsLeftAlone: a phase is something else
// there.
func TestObject_StatusOfBuiltInKindsIsLeftAlone(t *testing.T) {
	shelf := newShelf("phase", "conditions")

	for version, want := range map[string]bool{
		"v1": false, "apps/v1": false, "policy/v1": false, "networking.k8s.io/v1": false,
		"cluster.x-k8s.io/v1beta1": true, "vitistack.io/v1alpha1": true,
	} {
		of := published()
		of.APIVersion = version

		_, _, err := publish.NewObjectStore(shelf, of).Status(t.Context())
		if ours := !errors.Is(err, cluster.ErrUnsupported); ours != want {
			t.Errorf("the status of a kind of %s is ours to write: %t, want %t (%v)", version, ours, want, err)
		}
	}
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// live is a store in a cluster with a real API server, and a client to look at
// it with.
func live(t *testing.T, clusterID string) (*publish.ObjectStore, kubernetes.Interface) {
	t.Helper()
	toolchain.NeedKubernetes(t)

	// Building Kubernetes, where nobody has yet, takes minutes.
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()

	cluster, err := sim.Start(ctx, sim.Options{ControlPlanes: 1, Talos: "1.13.2", Kubernetes: "1.35.2", Seed: 1, Dir: t.TempDir(), Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})

	config, err := clientcmd.BuildConfigFromFlags("", cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(httpClient.CloseIdleConnections)

	kubeconfig, err := os.ReadFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}

	api, err := kubeapi.New(kubeconfig, "", kubeapi.Options{})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(api.Close)

	other, err := kubernetes.NewForConfigAndClient(config, httpClient)
	if err != nil {
		t.Fatal(err)
	}

	return publish.NewConfigMapStore(api, clusterID), other
}

func TestConfigMap_IsMadeAnnotatedAndLeftToItsOwner(t *testing.T) {
	store, other := live(t, "cluster-1")
	maps := other.CoreV1().ConfigMaps(publish.ConfigMapNamespace)

	if found, err := store.Read(t.Context()); err != nil || len(found) != 0 {
		t.Fatalf("before: %v, %v", found, err)
	}

	publisher := publish.New(store, publish.Options{})
	for _, event := range story() {
		publisher.Observe(event)
	}

	if err := publisher.Close(t.Context()); err != nil {
		t.Fatal(err)
	}

	found, err := store.Read(t.Context())
	if err != nil || found[protocol.KeyTalosStatus] != "completed" || found[protocol.KeyTalosCurrent] != "1.13.4" || found[protocol.KeyTalosProgress] != "2/2" {
		t.Errorf("published %v, %v", found, err)
	}

	object, err := maps.Get(t.Context(), publish.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if object.Labels["app.kubernetes.io/managed-by"] != "terraform-provider-talosupgrade" || object.Annotations["talosupgrade.vitistack.io/cluster-id"] != "cluster-1" {
		t.Errorf("the object is marked as %v, %v", object.Labels, object.Annotations)
	}

	// An object of that name that somebody else made keeps what it has.
	if err := maps.Delete(t.Context(), publish.ConfigMapName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	_, err = maps.Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: publish.ConfigMapName, Annotations: map[string]string{"mine": "yes", protocol.KeyFailedNodes: "cp-9"}},
		Data:       map[string]string{"mine": "too"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}

	status := "idle"
	if err := store.Patch(t.Context(), map[string]*string{protocol.KeyTalosStatus: &status, protocol.KeyFailedNodes: nil}); err != nil {
		t.Fatal(err)
	}

	object, err = maps.Get(t.Context(), publish.ConfigMapName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}

	if _, stands := object.Annotations[protocol.KeyFailedNodes]; stands || len(object.Labels) != 0 || object.Data["mine"] != "too" ||
		object.Annotations["mine"] != "yes" || object.Annotations[protocol.KeyTalosStatus] != "idle" {
		t.Errorf("somebody else's object became %v, %v, %v", object.Labels, object.Annotations, object.Data)
	}
}

// refusing is an API server that answers reads, and patches, with a code; without
// one it does what it is asked for.
type refusing struct {
	read, patch int
	message     string
	patched     *atomic.Int32
}

func (r refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	code := r.patch
	if request.Method == http.MethodGet {
		code = r.read
	}

	body := `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"talosupgrade"}}`

	if code == 0 {
		code = http.StatusOK

		if request.Method != http.MethodGet {
			r.patched.Add(1)
		}
	} else {
		body = fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":%q}`, code, r.message)
	}

	return &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: request,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)),
	}, nil
}

// asked makes a store of it.
func (r refusing) asked(t *testing.T) *publish.ObjectStore {
	t.Helper()

	return publish.NewConfigMapStore(sink(t, r), "x")
}

// TestConfigMap_ForbiddenHoldsNothingUp, and one that may only be written is.
func TestConfigMap_ForbiddenHoldsNothingUp(t *testing.T) {
	for name, test := range map[string]struct {
		patch  int
		denied bool
	}{"at all": {http.StatusForbidden, true}, "to be read": {0, false}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := refusing{read: http.StatusForbidden, patch: test.patch, message: "it is forbidden", patched: &atomic.Int32{}}
				publisher := publish.New(api.asked(t), publish.Options{})

				for _, event := range story() {
					publisher.Observe(event)
					synctest.Wait()
				}

				begun := time.Now()

				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()

				publisher.Flush(ctx)

				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("flushing took %s", took)
				}

				if published := api.patched.Load() > 0; published == test.denied {
					t.Errorf("it was published: %t", published)
				}

				if err := publisher.Close(t.Context()); errors.Is(err, cluster.ErrDenied) != test.denied || !test.denied && err != nil {
					t.Errorf("closing: %v", err)
				}
			})
		})
	}
}

// TestConfigMap_WriteOnlyIsNotSaidToBeMissing where it cannot be read back.
func TestConfigMap_WriteOnlyIsNotSaidToBeMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		shelf.answer = func(call string) error {
			if call == "read" {
				return fmt.Errorf("forbidden: %w", cluster.ErrDenied)
			}

			return nil
		}

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		for _, event := range story() {
			publisher.Observe(event)
			synctest.Wait()
		}

		// The status is another matter: it cannot be written without being read.
		if err := publisher.Close(t.Context()); err == nil || strings.Contains(err.Error(), "annotations") || !strings.Contains(err.Error(), "the status of") {
			t.Errorf("closing: %v", err)
		}

		if got := shelf.get(talosStatus); got != "completed" {
			t.Errorf("status %q", got)
		}
	})
}

// TestObject_ForeignWriteIsCorrectedWithTheHeartbeat, and not in a race with the
// other writer; who reads the notes learns of it.
func TestObject_ForeignWriteIsCorrectedWithTheHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf()
		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})

		publisher.Observe(story()[0])
		synctest.Wait()

		// An operator that was not held writes every 5 seconds, in its own words.
		const minutes = 5

		meddling := map[string]any{protocol.KeyTalosStatus: "idle", protocol.KeyTalosMessage: "I do nothing", protocol.KeyTalosProgress: nil, "theirs": "no"}

		corrected := 0

		for range minutes * 12 {
			shelf.annotate(meddling)
			time.Sleep(5 * time.Second)
			synctest.Wait()

			if shelf.get(protocol.KeyTalosStatus) == "in-progress" {
				corrected++
			}
		}

		if corrected < minutes*6-1 || corrected > minutes*6+1 {
			t.Errorf("what was written 60 times was seen corrected %d times, want with every heartbeat", corrected)
		}

		if got := len(shelf.calls); got > 1+minutes*6 {
			t.Errorf("it wrote %d times in %d minutes", got, minutes)
		}

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if got := shelf.get(protocol.KeyTalosStatus) + shelf.get("theirs"); got != "in-progressno" {
			t.Errorf("in the end there is %q", got)
		}

		notes := publisher.Notes()
		if len(notes) != 1 {
			t.Fatalf("it has the notes %q, want one", notes)
		}

		for _, part := range []string{"KubernetesCluster tenant-a/prod", protocol.KeyTalosMessage + " (3", protocol.KeyTalosProgress, protocol.KeyTalosStatus, "Somebody else"} {
			if !strings.Contains(notes[0], part) {
				t.Errorf("the note is %q, want it to name %q", notes[0], part)
			}
		}

		if strings.Contains(notes[0], protocol.KeyTalosCurrent) {
			t.Errorf("the note names what nobody else wrote: %q", notes[0])
		}
	})
}

// TestObject_MadeAgainIsToldEverythingAndBlamesNobody: all of it is told to the
// new one, and nobody is blamed.
func TestObject_MadeAgainIsToldEverythingAndBlamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf := newShelf("phase", "conditions")
		shelf.write(map[string]any{"metadata": map[string]any{"uid": "first"}})

		publisher := publish.New(publish.NewObjectStore(shelf, published()), publish.Options{})
		publisher.Observe(story()[0])
		synctest.Wait()

		fresh := newShelf()
		fresh.write(map[string]any{"metadata": map[string]any{"uid": "second"}})

		shelf.mutex.Lock()
		shelf.found = fresh.found
		shelf.mutex.Unlock()

		// What is told of the next turn is not all that the new one lacks.
		publisher.Observe(story()[2])
		time.Sleep(25 * time.Second)
		synctest.Wait()

		expect(t, shelf, map[string]string{
			talosStatus: "in-progress", talosMessage: "Talos upgrade started: 1.12.6 → 1.13.4", talosCurrent: "1.12.6", "phase": "UpgradingTalos",
		})

		if notes := publisher.Notes(); len(notes) > 0 {
			t.Errorf("it has notes: %q", notes)
		}

		// On the new one somebody else may write as on the old one.
		shelf.annotate(map[string]any{talosStatus: "idle"})

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if notes := publisher.Notes(); len(notes) != 1 {
			t.Errorf("it has the notes %q, want one", notes)
		}
	})
}

// TestObject_FightAtTheEndIsGivenUpInTime, and the error names what is fought for.
func TestObject_FightAtTheEndIsGivenUpInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{after: func(found map[string]string) { found[protocol.KeyTalosStatus] = "idle" }}

		publisher := publish.New(store, publish.Options{})
		for _, event := range story() {
			publisher.Observe(event)
		}

		begun := time.Now()
		err := publisher.Close(t.Context())

		if err == nil || !strings.Contains(err.Error(), "somebody else") || !strings.Contains(err.Error(), protocol.KeyTalosStatus) || strings.Contains(err.Error(), protocol.KeyTalosMessage) {
			t.Errorf("closing: %v", err)
		}

		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("it took %s", took)
		}

		if got := len(store.patches); got > 10 {
			t.Errorf("it wrote %d times", got)
		}
	})
}

// TestObject_LateAttemptIsNotTakenForAnotherWriter: it was given up, and took effect after
// what was written next.
func TestObject_LateAttemptIsNotTakenForAnotherWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memory{loses: 1}
		publisher := publish.New(store, publish.Options{})

		publisher.Observe(story()[0])
		synctest.Wait()
		time.Sleep(time.Second)
		publisher.Observe(story()[1])
		synctest.Wait()

		store.mutex.Lock()
		store.found[protocol.KeyTalosMessage] = "Talos upgrade started: 1.12.6 → 1.13.4"
		store.mutex.Unlock()

		time.Sleep(15 * time.Second)
		synctest.Wait()

		if got := store.get(protocol.KeyTalosMessage); got != "Upgrading node worker-0 (0/2)" {
			t.Errorf("the message is %q after the heartbeat", got)
		}

		if notes := publisher.Notes(); len(notes) > 0 {
			t.Errorf("it has notes: %q", notes)
		}

		// It cannot arrive again.
		store.mutex.Lock()
		store.found[protocol.KeyTalosMessage] = "All is well"
		store.mutex.Unlock()

		if err := publisher.Close(t.Context()); err != nil {
			t.Error(err)
		}

		if got := store.get(protocol.KeyTalosMessage); got != "Upgrading node worker-0 (0/2)" {
			t.Errorf("the message is %q", got)
		}

		if notes := publisher.Notes(); len(notes) != 1 || !strings.Contains(notes[0], protocol.KeyTalosMessage+" (once)") {
			t.Errorf("it has the notes %q, want one of the message", notes)
		}
	})
}
