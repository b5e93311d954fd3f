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

// wordsLimit is how many bytes of an annotation a message has, so that it does not crowd out the rest: an
// annotation may have 256 KiB.
const wordsLimit = 500

// object is an object as decoded JSON.
type object map[string]any

// text returns the string at the path; empty if there is none.
func (o object) text(path ...string) string {
	found, ok, err := unstructured.NestedString(o, path...)
	if err != nil || !ok {
		return ""
	}

	return found
}

// annotation returns the value of an annotation and whether it is set.
func (o object) annotation(key string) (value string, stands bool) {
	value, stands, err := unstructured.NestedString(o, "metadata", "annotations", key)

	return value, stands && err == nil
}

func (o object) name() string { return o.text("metadata", "name") }

func (o object) deleting() bool { return o.text("metadata", "deletionTimestamp") != "" }

// failure returns what the conditions say about a failure; empty if they say nothing.
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

// plain returns a version without "v", and any other text unchanged.
func plain(text string) string {
	if parsed, err := version.Parse(strings.TrimSpace(text)); err == nil {
		return parsed.String()
	}

	return text
}

// says reports whether a text is the version, with or without "v".
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

// field returns the part of a key, or the field, for the product.
func field(product version.Product, talos, kubernetes string) string {
	if product == version.Kubernetes {
		return kubernetes
	}

	return talos
}

// state is the progress of an upgrade in the Secret of the operator.
type state struct {
	Half   string `json:"upgradeType"`
	Target string `json:"targetVersion"`
	Phase  string `json:"phase"`
}

// underway returns the product that the operator is upgrading according to its Secret, and the target; empty if
// there is none. current returns the version of a product according to the object: once that or the version in the
// Secret is the target, the upgrade is over.
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

// ended reports whether the upgrade that the Secret names is over, although the Secret says that it is in progress:
// the operator leaves it like that if it fails. A state for another upgrade is from an earlier one and does not
// count.
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

// reached reports whether the version to which the operator was upgrading is running.
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
