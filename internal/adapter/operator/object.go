// SPDX-License-Identifier: MPL-2.0

package operator

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

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

func nobody(of cluster.Reference, product version.Product, to version.Version) error {
	return fmt.Errorf("unable to have an operator run %s %s by way of %s: %w: none is known to act on it; name a %s or a %s",
		product.Name(), to, of, cluster.ErrUnsupported, vitistackKind, declarativeKind)
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

func groupOf(apiVersion string) string {
	group, _, _ := strings.Cut(apiVersion, "/")

	return group
}
