// SPDX-License-Identifier: MPL-2.0

package manifest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	fluxssa "github.com/fluxcd/pkg/ssa"
	ssaerrors "github.com/fluxcd/pkg/ssa/errors"
	"github.com/fluxcd/pkg/ssa/utils"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa"
	"github.com/siderolabs/go-kubernetes/kubernetes/ssa/object"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/cluster"
)

var _ ssa.ResourceManager = (*resourceManager)(nil)

// resourceManager carries out the single steps of a sync. Compared to the library's, its errors name the object and
// are not retried by its callers, and waiting for a stage ends with the context.
type resourceManager struct {
	*fluxssa.ResourceManager

	client client.Client
	mapper *restmapper.DeferredDiscoveryRESTMapper
	// recreated are objects that exist and have to be recreated, because fields that may not change do.
	recreated object.ObjMetadataSet
	// marked are the Secrets of which only labels and annotations change, with the diff of these.
	marked map[object.ObjMetadata]string
}

// change corrects the action of recreated objects, which the libraries report as created, and shows what may be
// shown of Secrets.
func (r *resourceManager) change(subject object.ObjMetadata, action cluster.ManifestAction, diff string) cluster.ManifestChange {
	if action == cluster.ManifestCreated && r.recreated.Contains(subject) {
		action = cluster.ManifestConfigured
	}

	change := newChange(subject, action, diff)

	if marks := r.marked[subject]; marks != "" && action == cluster.ManifestConfigured {
		change.Diff = bounded(marks)
	}

	return change
}

// Diff compares one object. With Force, an object is recreated only if fields that may not change are all that the API
// server objects to.
func (r *resourceManager) Diff(ctx context.Context, wanted *unstructured.Unstructured, options fluxssa.DiffOptions) (
	entry *fluxssa.ChangeSetEntry, existing, merged *unstructured.Unstructured, err error,
) {
	gently := options
	gently.Force = false

	entry, existing, merged, err = r.ResourceManager.Diff(ctx, wanted, gently)
	if options.Force && frozen(err) {
		entry, existing, merged, err = r.ResourceManager.Diff(ctx, wanted, options)
		if err == nil && entry.Action == fluxssa.CreatedAction {
			r.recreated = append(r.recreated, entry.ObjMetadata)
		}
	}

	if err != nil {
		return entry, existing, merged, failed(nameOf(wanted), false, err)
	}

	if entry.Action == fluxssa.ConfiguredAction && utils.IsSecret(wanted) {
		r.marked[entry.ObjMetadata] = marks(existing, merged)
	}

	return entry, existing, merged, nil
}

// frozenField matches what the API server says of a field that may not change.
const frozenField = `(?i)immutable|(may|must) not (be )?change|cannot (be )?change|updates to .* are forbidden`

// frozen reports whether the API server refuses a change of an object for no other reason than that fields of it may
// not change. What an admission policy or a webhook refuses does not count: it may refuse the new object as well.
func frozen(err error) bool {
	var status apierrors.APIStatus
	if err == nil || !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		return false
	}

	details := status.Status().Details
	if details == nil || len(details.Causes) == 0 {
		return false
	}

	says := regexp.MustCompile(frozenField)

	return !slices.ContainsFunc(details.Causes, func(cause metav1.StatusCause) bool {
		// The reason follows the value, which is quoted.
		reason := cause.Message[strings.LastIndex(cause.Message, ": ")+1:]

		return cause.Field == "" || !says.MatchString(reason)
	})
}

// Get reads an object of the inventory. If its kind no longer exists, the object is not found.
func (r *resourceManager) Get(ctx context.Context, reference object.ObjMetadata) (*unstructured.Unstructured, error) {
	mapping, err := r.mapper.RESTMapping(reference.GroupKind)
	if meta.IsNoMatchError(err) {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: reference.GroupKind.Group, Resource: reference.GroupKind.Kind}, reference.Name)
	}

	if err != nil {
		return nil, failed(ssa.FormatMetaPath(reference), false, err)
	}

	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(mapping.GroupVersionKind)

	if err := r.client.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, found); err != nil {
		return nil, failed(ssa.FormatMetaPath(reference), false, err)
	}

	return found, nil
}

// Delete deletes one object.
func (r *resourceManager) Delete(
	ctx context.Context, subject *unstructured.Unstructured, options fluxssa.DeleteOptions,
) (*fluxssa.ChangeSetEntry, error) {
	entry, err := r.ResourceManager.Delete(ctx, subject, options)

	return entry, failed(nameOf(subject), true, err)
}

// ApplyAllStaged applies definitions first, then classes, then the kinds in the options, then the rest, as the
// library does. Objects that have to be recreated are applied one by one: if a later one fails, those before it exist.
func (r *resourceManager) ApplyAllStaged(
	ctx context.Context, objects []*unstructured.Unstructured, options fluxssa.ApplyOptions,
) (*fluxssa.ChangeSet, error) {
	const (
		definitions = iota
		classes
		custom
		rest
		count
	)

	var stages [count][]*unstructured.Unstructured

	for _, object := range objects {
		stage := rest

		switch {
		case utils.IsClusterDefinition(object):
			stage = definitions
		case utils.IsClassDefinition(object):
			stage = classes
		case utils.IsCustomStage(object, options.CustomStageKinds):
			stage = custom
		}

		stages[stage] = append(stages[stage], object)
	}

	applied := fluxssa.NewChangeSet()

	for stage, members := range stages {
		entries := fluxssa.NewChangeSet()

		for _, step := range r.steps(members) {
			options.Force = step.recreate

			done, err := r.ApplyAll(ctx, step.objects, options)
			if err != nil {
				return applied, failed(involved(err), true, err)
			}

			applied.Append(done.Entries)
			entries.Append(done.Entries)
		}

		if stage > classes {
			continue
		}

		err := r.WaitForSetWithContext(ctx, entries.ToObjMetadataSet(), fluxssa.WaitOptions{
			Interval: options.WaitInterval, Timeout: options.WaitTimeout,
		})
		if err != nil {
			return applied, failed("", true, err)
		}

		if err := r.learn(ctx, members); err != nil {
			return applied, err
		}
	}

	return applied, nil
}

// applyStep are objects that are applied together.
type applyStep struct {
	objects  []*unstructured.Unstructured
	recreate bool
}

// steps returns the objects that are changed in place, together, followed by each object that has to be recreated.
func (r *resourceManager) steps(objects []*unstructured.Unstructured) []applyStep {
	first, rest := applyStep{}, []applyStep(nil)

	for _, one := range objects {
		if slices.ContainsFunc(r.recreated, func(reference object.ObjMetadata) bool { return refers(reference, one) }) {
			rest = append(rest, applyStep{objects: []*unstructured.Unstructured{one}, recreate: true})
		} else {
			first.objects = append(first.objects, one)
		}
	}

	return append([]applyStep{first}, rest...)
}

// learn waits until the API server serves the kinds that were just defined: discovery has them a little later than
// the definitions are established, and the mapper has cached it from before.
func (r *resourceManager) learn(ctx context.Context, definitions []*unstructured.Unstructured) error {
	for _, definition := range definitions {
		if !utils.IsCRD(definition) {
			continue
		}

		kind := schema.GroupKind{}
		kind.Group, _, _ = unstructured.NestedString(definition.Object, "spec", "group")
		kind.Kind, _, _ = unstructured.NestedString(definition.Object, "spec", "names", "kind")

		err := wait.PollUntilContextTimeout(ctx, learnInterval, stageTimeout, true, func(context.Context) (bool, error) {
			_, err := r.mapper.RESTMapping(kind)
			if err != nil {
				r.mapper.Reset()
			}

			return err == nil, nil
		})
		if err != nil {
			return failed(nameOf(definition), true, fmt.Errorf("waiting for %s to be served: %w", kind, err))
		}
	}

	return nil
}

func nameOf(subject *unstructured.Unstructured) string { return ssa.FormatObjectPath(subject) }

// involved returns the object whose dry run failed; empty if the error names it.
func involved(err error) string {
	var refused *ssaerrors.DryRunErr
	if errors.As(err, &refused) && refused.InvolvedObject() != nil {
		return nameOf(refused.InvolvedObject())
	}

	return ""
}
