// SPDX-License-Identifier: MPL-2.0

// Package attribute has what the attributes of the provider share: validators, values, and plan modifiers.
package attribute

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/agext/levenshtein"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/adapter/label"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/image"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/provider/diagnostic"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/version"
)

var _ validator.String = Text{}

// Text is a validator of texts. Null and unknown values are valid.
type Text struct {
	// Accepts completes "value must".
	Accepts string
	// Check returns the error of the text at a path; nil if the text is valid.
	Check func(at path.Path, text string) diag.Diagnostic
}

// Description implements [validator.String].
func (t Text) Description(context.Context) string { return "value must " + t.Accepts }

// MarkdownDescription implements [validator.String].
func (t Text) MarkdownDescription(ctx context.Context) string { return t.Description(ctx) }

// ValidateString implements [validator.String].
func (t Text) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	text, given := PlainText(req.ConfigValue)
	if !given {
		return
	}

	if wrong := t.Check(req.Path, text); wrong != nil {
		resp.Diagnostics.Append(wrong)
	}
}

// Problem returns the error of the value at the path. Its text is the path and the detail, which begins with a space or
// a colon.
func Problem(at path.Path, summary, detail string) diag.Diagnostic {
	return diag.NewAttributeErrorDiagnostic(diagnostic.Visible(at), summary, at.String()+detail)
}

// matching accepts texts that are valid, and says of any other what is accepted.
func matching(summary, accepts string, valid func(text string) bool) Text {
	return Text{accepts, func(at path.Path, text string) diag.Diagnostic {
		if valid(text) {
			return nil
		}

		return Problem(at, summary, fmt.Sprintf(" is %q: value must %s.", text, accepts))
	}}
}

// parsed returns a check for texts that the function parses without an error. The error of the check is that of the
// function, followed by the advice.
func parsed(summary, advice string, parse func(text string) error) func(path.Path, string) diag.Diagnostic {
	return func(at path.Path, text string) diag.Diagnostic {
		err := parse(text)
		if err == nil {
			return nil
		}

		return diag.NewAttributeErrorDiagnostic(diagnostic.Visible(at), summary, Located(at, err)+advice)
	}
}

// Located returns the error as a sentence. If the value is only a part of an attribute, the sentence begins with its
// path, because the command line only shows the attribute.
func Located(at path.Path, err error) string {
	if len(at.Steps()) == 1 {
		return diagnostic.Sentence(err.Error())
	}

	return at.String() + ": " + err.Error() + "."
}

// Choice accepts one of two texts. The advice says which of them to write when.
func Choice(summary, advice, one, other string) Text {
	return Text{fmt.Sprintf("be %q or %q", one, other), func(at path.Path, text string) diag.Diagnostic {
		if text == one || text == other {
			return nil
		}

		return Problem(at, summary, fmt.Sprintf(" is %q.%s\n\n%s", text, DidYouMean(text, one, other), advice))
	}}
}

// DidYouMean returns a question, after a space, that names what was most likely meant by what was written: the name
// with the smallest edit distance, up to a third of its length. It is empty if no name is that close.
func DidYouMean(written string, names ...string) string {
	best, fewest := "", 0

	for _, name := range names {
		distance := levenshtein.Distance(written, name, nil)
		if distance > len(name)/3 || (best != "" && distance >= fewest) {
			continue
		}

		best, fewest = name, distance
	}

	if best == "" {
		return ""
	}

	return fmt.Sprintf(" Did you mean %q?", best)
}

// Version accepts versions, with or without v.
func Version() Text {
	return Text{"be a version such as 1.13.4, with or without v", parsed("Invalid version", "", func(text string) error {
		_, err := version.Parse(text)

		return err
	})}
}

// Minor accepts versions and minor versions, with or without v.
func Minor() Text {
	return matching("Invalid version", "be a version such as 1.13.4 or a minor version such as 1.13, with or without v", func(text string) bool {
		_, ok := ParseMinor(text)

		return ok
	})
}

// ParseMinor returns the minor version of "1.13" or "1.13.4".
func ParseMinor(text string) (version.Minor, bool) {
	if strings.Count(text, ".") == 1 && !strings.Contains(text, "-") {
		text += ".0"
	}

	parsed, err := version.Parse(text)

	return parsed.Minor(), err == nil
}

// Duration accepts durations above zero.
func Duration() Text {
	return matching("Invalid duration", `be a duration above zero such as "90s" or "1h30m"`, func(text string) bool {
		duration, err := time.ParseDuration(text)

		return err == nil && duration > 0
	})
}

// DurationOrZero accepts durations that are not negative.
func DurationOrZero() Text {
	return matching("Invalid duration", `be a duration such as "0s", "90s" or "1h30m"`, func(text string) bool {
		duration, err := time.ParseDuration(text)

		return err == nil && duration >= 0
	})
}

// Image accepts image references without tag and digest. The tag is chosen by the named attribute.
func Image(by string) Text {
	return Text{"be an image reference without tag", parsed("Invalid image", " The tag is chosen by "+by+".", func(text string) error {
		_, err := image.ParseRepository(text)

		return err
	})}
}

// InstallerImage accepts images of installers, as [image.ParseInstaller] does. The tag is chosen by the named
// attribute.
func InstallerImage(by string) Text {
	accepts := "be an image reference without tag, with the tag of " + by + ", or with a digest"

	return Text{accepts, parsed("Invalid image", " The tag is chosen by "+by+".", func(text string) error {
		_, err := image.ParseInstaller(text)

		return err
	})}
}

// Share accepts numbers and percentages of workers.
func Share() Text {
	return Text{`be a whole number of at least 1, or a percentage from "1%" to "100%"`, func(at path.Path, text string) diag.Diagnostic {
		if _, err := cluster.ParseShare(text); err != nil {
			return Problem(at, "Invalid number of workers", ": "+err.Error()+".")
		}

		return nil
	}}
}

// Selector accepts label selectors with at least one requirement.
func Selector() Text {
	return Text{`be a label selector such as "pool=gpu" or "pool in (gpu, storage),!spare"`, func(at path.Path, text string) diag.Diagnostic {
		if _, err := label.Parse(text); err != nil {
			return WrongSelector(at, text, err)
		}

		return nil
	}}
}

// WrongSelector returns the error of an invalid label selector.
func WrongSelector(at path.Path, text string, err error) diag.Diagnostic {
	return Problem(at, "Invalid label selector", fmt.Sprintf(
		" is %q: %s.\n\nWrite it as kubectl get nodes -l takes it, such as \"pool=gpu\", \"pool in (gpu, storage)\" or \"upgrade=hold,!spare\".", text, err))
}

// apiVersionText matches a version with an optional group.
var apiVersionText = regexp.MustCompile(`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[0-9][a-z0-9]*$`)

// APIVersion accepts API versions as in manifests.
func APIVersion() Text {
	return matching("Invalid API version", "be an API version such as v1 or example.com/v1beta1", apiVersionText.MatchString)
}

// objectNameText matches names made of what a DNS name may have, as required by most kinds of objects; it does not
// check each label. maxObjectName is the maximum length.
var objectNameText = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`)

const maxObjectName = 253

// ObjectName accepts names of objects and of namespaces.
func ObjectName() Text {
	return matching("Invalid name", "be the name of an object: lower-case letters, digits, hyphens and dots", func(text string) bool {
		return objectNameText.MatchString(text) && len(text) <= maxObjectName
	})
}

// kindText matches a kind as in manifests.
var kindText = regexp.MustCompile(`^[A-Z][A-Za-z0-9]*$`)

// IsKind reports whether the text may be a kind.
func IsKind(text string) bool { return kindText.MatchString(text) }

// Kind accepts kinds of objects that may be annotated. The known kinds are proposed if one of them was misspelt.
func Kind(known ...string) Text {
	const accepts = "be the kind of an object as in its manifest, such as KubernetesCluster, and not Secret"

	return Text{accepts, func(at path.Path, text string) diag.Diagnostic {
		switch {
		case text == "Secret":
			return Problem(at, "Invalid kind",
				" is \"Secret\": Secrets are neither read nor written for this. Name an object that others may read, such as a ConfigMap.")
		case !IsKind(text):
			return Problem(at, "Invalid kind", fmt.Sprintf(" is %q: value must %s.%s", text, accepts, DidYouMean(text, known...)))
		default:
			return nil
		}
	}}
}
