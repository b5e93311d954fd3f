// SPDX-License-Identifier: MPL-2.0

package manifest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

// everyError returns the error and all that it wraps.
func everyError(err error) []error {
	all := []error{err}

	switch wrapping := any(err).(type) {
	case interface{ Unwrap() error }:
		if inner := wrapping.Unwrap(); inner != nil {
			all = append(all, everyError(inner)...)
		}
	case interface{ Unwrap() []error }:
		for _, inner := range wrapping.Unwrap() {
			all = append(all, everyError(inner)...)
		}
	}

	return all
}

func TestSecret_IsNotQuotedByErrors(t *testing.T) {
	r := newRig(t)

	const (
		kept = "4711"
		word = "hunter2"
	)

	for name, test := range map[string]struct {
		document string
		want     error
		says     string
	}{
		"a value that is a number":  {`{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: NAMESPACE}, stringData: {value: 4711}}`, nil, "Secret/"},
		"a value that is an object": {`{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: NAMESPACE}, data: {value: {hunter2: 4711}}}`, nil, "Secret/"},
		"a value that is no base64": {`{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: NAMESPACE}, data: {value: "hunter2!"}}`, nil, "Secret/"},
		"a field that is none":      {`{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: NAMESPACE}, hunter2: 4711}`, nil, "Secret/"},
		"a name that is none":       {`{apiVersion: v1, kind: Secret, metadata: {name: hunter2_4711, namespace: NAMESPACE}, type: "hunter2 4711"}`, nil, ""},
		"no kind":                   {`{apiVersion: v1, metadata: {name: token}, stringData: {value: hunter2, number: 4711}}`, cluster.ErrRefused, "00-test: an object without kind or apiVersion"},
		"no apiVersion":             {`{kind: Secret, metadata: {name: token}, stringData: {value: hunter2, number: 4711}}`, cluster.ErrRefused, "an object without kind or apiVersion"},
	} {
		r.renders(test.document)

		failures := 0

		for way, options := range map[string]cluster.ManifestOptions{"server-side": serverSide, "legacy": {}, "by force": {ServerSide: true, Force: true}} {
			for call, run := range map[string]func(context.Context, string, cluster.ManifestOptions) ([]cluster.ManifestChange, error){
				"diff": r.Diff, "apply": r.Apply,
			} {
				_, err := run(t.Context(), controlPlane, options)
				if err == nil {
					continue
				}

				failures++

				if test.want != nil && !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.says) {
					t.Errorf("%s, %s, %s: %v, want %v that says %q", name, way, call, err, test.want, test.says)
				}

				for _, part := range everyError(err) {
					for _, text := range []string{fmt.Sprintf("%v", part), fmt.Sprintf("%+v", part), fmt.Sprintf("%#v", part)} {
						text = strings.ReplaceAll(text, "hunter2_4711", "")
						if strings.Contains(text, kept) || strings.Contains(text, word) {
							t.Errorf("%s, %s, %s: %T says %s", name, way, call, part, text)
						}
					}
				}
			}
		}

		if failures == 0 {
			t.Errorf("%s: nothing failed", name)
		}
	}
}

func TestSecret_OnlyItsMarksAreShown(t *testing.T) {
	r := newRig(t)

	secrets := r.other.CoreV1().Secrets(r.namespace)

	_, err := secrets.Create(t.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "token", Annotations: map[string]string{"note": "hunter2"}},
		StringData: map[string]string{"value": "hunter2"},
	}, metav1.CreateOptions{FieldManager: "talos"})
	if err != nil {
		t.Fatal(err)
	}

	const noted = `{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: NAMESPACE, annotations: {note: "%s"}}, stringData: {value: hunter2}}`

	for name, test := range map[string]struct {
		document   string
		says, omit string
	}{
		"adopted":            {fmt.Sprintf(token, "hunter2"), "+    " + ssa.InventoryAnnotationKey + ":", "-"},
		"another value":      {fmt.Sprintf(token, "hunter3"), "the content of a Secret is not shown", ssa.InventoryAnnotationKey},
		"another annotation": {fmt.Sprintf(noted, "hunter4"), "+    note: (not shown, another one)", "hunter"},
	} {
		r.renders(test.document)

		changes, err := r.Diff(t.Context(), controlPlane, serverSide)
		r.expect(name, changes, err, "change Secret/NAMESPACE/token")

		// The heading names what is compared.
		_, diff, _ := strings.Cut(changes[0].Diff, "@@")
		if diff == "" {
			diff = changes[0].Diff
		}

		if !strings.Contains(diff, test.says) || strings.Contains(diff, "\n"+test.omit) || strings.Contains(diff, "hunter") {
			t.Errorf("%s: %s", name, changes[0].Diff)
		}
	}
}
