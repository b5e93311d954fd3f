// SPDX-License-Identifier: MPL-2.0

// Package operator speaks to controllers that may upgrade the same cluster: it
// reads what their objects say, keeps them from acting, asks them to act, and
// reads the credentials that one of them keeps.
//
// Which controller it is follows from the object, see [KindOf]. All of them are
// reached through the ports of package cluster, and every change is conditional on
// what was read before, because the controllers write the same objects all the
// time.
package operator

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

// Access is how the objects of an operator are reached.
type Access interface {
	cluster.ObjectAccess
	cluster.SecretAccess
}

// New is the operator that may act on the object; which one follows from
// [KindOf]. It asks nobody.
func New(of cluster.Reference, access Access) cluster.Operator {
	of, _ = Complete(of)

	switch KindOf(of) {
	case Vitistack:
		return &vitistack{annotated: annotated{of: of, access: access}}
	case Declarative:
		return &declarative{of: of, access: access}
	case Annotated:
		return &annotated{of: of, access: access}
	default:
		return &bystander{of: of, access: access}
	}
}

// bystander is an object that nobody acts on.
type bystander struct {
	of     cluster.Reference
	access Access
}

func (b *bystander) String() string { return b.of.String() }

// Report says what is annotated. Whoever held it or asked it for something did so
// without effect.
func (b *bystander) Report(ctx context.Context) (cluster.OperatorReport, error) {
	found, err := b.access.Object(ctx, b.of)
	if err != nil {
		return cluster.OperatorReport{}, err
	}

	report := reported(b.of, found)
	report.Passive, report.Hold, report.Unhold = true, "", ""

	return report, nil
}

func (b *bystander) Hold(context.Context, string, string) error { return nil }

func (b *bystander) Settle(context.Context, version.Version, version.Version) error { return nil }

func (b *bystander) Release(context.Context, string) error { return nil }

func (b *bystander) Ask(_ context.Context, product version.Product, to version.Version) error {
	return nobody(b.of, product, to)
}

func (b *bystander) Withdraw(_ context.Context, product version.Product, to version.Version) error {
	return nobody(b.of, product, to)
}

func nobody(of cluster.Reference, product version.Product, to version.Version) error {
	return fmt.Errorf("unable to have an operator run %s %s by way of %s: %w: none is known to act on it; name a %s or a %s",
		product.Name(), to, of, cluster.ErrUnsupported, vitistackKind, declarativeKind)
}

// Kind is what may act on an object.
type Kind string

const (
	// Plain is an object of Kubernetes itself, such as a ConfigMap: nobody acts on
	// what its annotations say.
	Plain Kind = "plain"
	// Annotated is any other custom resource: a controller that follows the
	// annotation protocol may act on it.
	Annotated Kind = "annotated"
	// Vitistack is a KubernetesCluster: its operator follows the annotation
	// protocol, and keeps a Secret beside the object.
	Vitistack Kind = "vitistack"
	// Declarative is a TalosControlPlane: its operator brings the cluster to what
	// the object says, and cannot be held.
	Declarative Kind = "declarative"
)

const (
	vitistackVersion   = "vitistack.io/v1alpha1"
	vitistackKind      = "KubernetesCluster"
	declarativeVersion = "talos.alperen.cloud/v1alpha1"
	declarativeKind    = "TalosControlPlane"
	workerKind         = "TalosWorker"
	machineKind        = "TalosMachine"
)

// KindOf tells by the kind of the object what may act on it.
func KindOf(of cluster.Reference) Kind {
	of, _ = Complete(of)

	group, _, found := strings.Cut(of.APIVersion, "/")

	switch {
	case !found, !strings.Contains(group, "."):
		// The group of a custom resource is a domain with a dot.
		return Plain
	case of.Kind == vitistackKind && group == groupOf(vitistackVersion):
		return Vitistack
	case of.Kind == declarativeKind && group == groupOf(declarativeVersion):
		return Declarative
	default:
		return Annotated
	}
}

// Complete fills in the API version of a kind that is known here, where none is
// given. It is false where the API version is neither given nor known.
func Complete(of cluster.Reference) (cluster.Reference, bool) {
	if of.APIVersion != "" {
		return of, true
	}

	switch of.Kind {
	case "ConfigMap":
		of.APIVersion = "v1"
	case vitistackKind:
		of.APIVersion = vitistackVersion
	case declarativeKind:
		of.APIVersion = declarativeVersion
	}

	return of, of.APIVersion != ""
}

func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")

	return group
}

// wordsLimit keeps what somebody annotated from crowding out what else is said, in
// bytes: an annotation may be as long as 256 KiB.
const wordsLimit = 500

// object is an object as decoded JSON.
type object map[string]any

// text is the string at the path; empty where there is none.
func (o object) text(path ...string) string {
	found, ok, err := unstructured.NestedString(o, path...)
	if err != nil || !ok {
		return ""
	}

	return found
}

// annotation tells the value of an annotation, and whether it stands.
func (o object) annotation(key string) (value string, stands bool) {
	value, stands, err := unstructured.NestedString(o, "metadata", "annotations", key)

	return value, stands && err == nil
}

func (o object) name() string { return o.text("metadata", "name") }

func (o object) deleting() bool { return o.text("metadata", "deletionTimestamp") != "" }

// failure is what the conditions say of a failure; empty where they say nothing.
func (o object) failure() string {
	conditions, _, err := unstructured.NestedSlice(o, "status", "conditions")
	if err != nil {
		return ""
	}

	for _, one := range conditions {
		condition, ok := one.(map[string]any)
		if !ok {
			continue
		}

		if of := object(condition); strings.HasSuffix(of.text("type"), "Failed") && of.text("status") == "True" && of.text("message") != "" {
			return shortened(of.text("message"))
		}
	}

	return ""
}

// plain is a version without "v", and any other text as it is.
func plain(text string) string {
	if parsed, err := version.Parse(strings.TrimSpace(text)); err == nil {
		return parsed.String()
	}

	return text
}

// says tells whether a text names the version, with or without "v".
func says(text string, what version.Version) bool {
	parsed, err := version.Parse(strings.TrimSpace(text))

	return err == nil && parsed.Equal(what)
}

func shortened(text string) string {
	if len(text) <= wordsLimit {
		return text
	}

	end := wordsLimit
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}

	return text[:end] + "…"
}

// field is the part of a key or of a field that tells the products apart.
func field(product version.Product, talos, kubernetes string) string {
	if product == version.Kubernetes {
		return kubernetes
	}

	return talos
}

// state is how far the operator is with an upgrade, as its Secret has it.
type state struct {
	Half   string `json:"upgradeType"`
	Target string `json:"targetVersion"`
	Phase  string `json:"phase"`
}

// underway is the product on which the operator is at work by its Secret, and to which
// version; empty where it is not. What it takes the cluster to run, as the object
// has it, is asked for by half: who is there already is not on the way.
func underway(secret cluster.Secret, current func(version.Product) string) (product version.Product, target string) {
	if string(secret.Data[busyKey]) != "true" || ended(secret) {
		return "", ""
	}

	product, target = version.Product(secret.Data[busyHalfKey]), plain(shortened(string(secret.Data[busyTargetKey])))

	if to, err := version.Parse(target); err == nil {
		if says(current(product), to) || says(string(secret.Data[versionKey(product)]), to) {
			return "", ""
		}
	}

	return product, target
}

// ended tells whether the upgrade that the Secret names is over although it is said
// to be in progress: the operator leaves that so when it fails. What it knows of
// another upgrade is of an earlier one.
func ended(secret cluster.Secret) bool {
	var found state

	if json.Unmarshal(secret.Data[busyStateKey], &found) != nil {
		return false
	}

	if found.Half != "" && found.Half != string(secret.Data[busyHalfKey]) {
		return false
	}

	if found.Target != "" && plain(found.Target) != plain(string(secret.Data[busyTargetKey])) {
		return false
	}

	return slices.Contains([]string{"failed", "completed", "cancelled", "idle"}, strings.ToLower(strings.TrimSpace(found.Phase)))
}

// reached tells whether the version to which the operator was on the way runs.
func reached(secret cluster.Secret, known map[string]version.Version) bool {
	product := version.Product(secret.Data[busyHalfKey])
	runs, isKnown := known[versionKey(product)]

	return isKnown && (product == version.Talos || product == version.Kubernetes) && says(string(secret.Data[busyTargetKey]), runs)
}

func versionKey(product version.Product) string {
	return field(product, talosVersionKey, kubernetesVersionKey)
}

// endStatus has the phase and the conditions of products that were cut off say so,
// where the object has such. It is for people: the hold has ended, whatever becomes
// of it.
func (a *annotated) endStatus(ctx context.Context, cut []version.Product) {
	ctx, cancel := context.WithTimeout(ctx, maxSecretWait)
	defer cancel()

	read, err := a.access.Object(ctx, a.of)
	if err != nil {
		return
	}

	if changes := endedStatus(read, cut, time.Now().UTC()); changes != nil {
		_, _ = a.access.PatchObject(ctx, a.of, "status", map[string]any{
			"metadata": map[string]any{"resourceVersion": object(read).text("metadata", "resourceVersion")},
			"status":   changes,
		})
	}
}

// endedStatus is what changes of the status; nil where nothing does. A list is
// replaced as a whole, so that foreign conditions are in it as they were.
func endedStatus(read object, cut []version.Product, now time.Time) map[string]any {
	conditions, _, err := unstructured.NestedSlice(read, "status", "conditions")
	if err != nil {
		return nil
	}

	changes, stale := map[string]any{}, false

	for _, one := range conditions {
		condition, ok := one.(map[string]any)
		if !ok {
			continue
		}

		about := func(product version.Product) bool { return object(condition).text("type") == product.Name()+"Upgrade" }
		if slices.ContainsFunc(cut, about) && object(condition).text("status") == "True" {
			condition["status"], condition["reason"], condition["message"] = "False", "Failed", cutOff
			condition["lastTransitionTime"], stale = now.Format(time.RFC3339), true
		}
	}

	if stale {
		changes["conditions"] = conditions
	}

	if strings.HasPrefix(read.text("status", "phase"), "Upgrading") {
		changes["phase"] = "UpgradeFailed"
	}

	if len(changes) == 0 {
		return nil
	}

	return changes
}
