// SPDX-License-Identifier: MPL-2.0

package operator

import (
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

// field is the part of a key or of a field that tells the halves apart.
func field(half cluster.Half, talos, kubernetes string) string {
	if half == cluster.HalfKubernetes {
		return kubernetes
	}

	return talos
}
