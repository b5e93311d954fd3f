// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const stageReceived = "RequestReceived"

// Who made a request, as the history names it.
const (
	byClient  = "client"
	byMachine = "machine"
	byOther   = "other"
)

// clientAgent begins the user agent of the provider.
const clientAgent = "terraform-provider-talosupgrade"

// auditEvent is the part of audit.k8s.io/v1 Event that is used here.
type auditEvent struct {
	AuditID    string `json:"auditID"`
	Stage      string `json:"stage"`
	RequestURI string `json:"requestURI"`
	Verb       string `json:"verb"`
	UserAgent  string `json:"userAgent"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		APIGroup    string `json:"apiGroup"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus metav1.Status   `json:"responseStatus"`
	RequestObject  json.RawMessage `json:"requestObject"`
	ResponseObject json.RawMessage `json:"responseObject"`
	Received       time.Time       `json:"requestReceivedTimestamp"`
}

// mark is the number that Sync left, if this is one of its requests.
func (e auditEvent) mark() (int64, bool) {
	path, query, found := strings.Cut(e.RequestURI, "?")
	if !found || path != markPath || e.User.Username != userSimulator {
		return 0, false
	}

	values, err := url.ParseQuery(query)
	if err != nil {
		return 0, false
	}

	mark, err := strconv.ParseInt(values.Get(markQuery), 10, 64)

	return mark, err == nil
}

// by tells who asked, by the certificate and else by the user agent.
func (e auditEvent) by() string {
	switch {
	case e.User.Username == userMachine:
		return byMachine
	case strings.HasPrefix(e.UserAgent, clientAgent):
		return byClient
	default:
		return byOther
	}
}

// resource is "pods" or, with a subresource, "pods/eviction".
func (e auditEvent) resource() string {
	if e.ObjectRef.Subresource != "" {
		return e.ObjectRef.Resource + "/" + e.ObjectRef.Subresource
	}

	return e.ObjectRef.Resource
}

func (e auditEvent) succeeded() bool {
	return e.ResponseStatus.Code >= http.StatusOK && e.ResponseStatus.Code < http.StatusMultipleChoices
}

// dryRun tells that the request was to change nothing: by its query, or in the
// body of a deletion or an eviction.
func (e auditEvent) dryRun() bool {
	if _, query, found := strings.Cut(e.RequestURI, "?"); found {
		values, err := url.ParseQuery(query)
		if err == nil && slices.Contains(values["dryRun"], metav1.DryRunAll) {
			return true
		}
	}

	var body struct {
		DryRun        []string `json:"dryRun"`
		DeleteOptions struct {
			DryRun []string `json:"dryRun"`
		} `json:"deleteOptions"`
	}

	if e.Verb != "delete" && e.ObjectRef.Subresource != "eviction" {
		return false
	}

	return json.Unmarshal(e.RequestObject, &body) == nil &&
		slices.Contains(append(body.DryRun, body.DeleteOptions.DryRun...), metav1.DryRunAll)
}

// name is the object's; a creation names it in the body only.
func (e auditEvent) name() string {
	if e.ObjectRef.Name != "" {
		return e.ObjectRef.Name
	}

	return e.object().Metadata.Name
}

// objectPath is where the object of a write is read; empty where there is none.
func (e auditEvent) objectPath() string {
	path, _, _ := strings.Cut(e.RequestURI, "?")

	switch {
	case e.ObjectRef.Subresource != "" && e.ObjectRef.Subresource != "status", e.name() == "":
		return ""
	case e.Verb == "create":
		return path + "/" + e.name()
	default:
		return path
	}
}

// shownBy tells whether an object is as the request wanted it to be.
func (e auditEvent) shownBy(object []byte, found bool) bool {
	if e.Verb == "delete" || !found {
		return e.Verb == "delete" && !found
	}

	var wanted, is struct {
		Metadata struct {
			Annotations map[string]any `json:"annotations"`
		} `json:"metadata"`
		Spec   any            `json:"spec"`
		Data   map[string]any `json:"data"`
		Status any            `json:"status"`
	}

	if json.Unmarshal(e.RequestObject, &wanted) != nil || json.Unmarshal(object, &is) != nil {
		return false
	}

	if e.Verb != "patch" {
		return e.ObjectRef.Subresource == "" && reflect.DeepEqual(wanted.Metadata, is.Metadata) &&
			reflect.DeepEqual(wanted.Spec, is.Spec) && reflect.DeepEqual(wanted.Data, is.Data) ||
			e.ObjectRef.Subresource == "status" && reflect.DeepEqual(wanted.Status, is.Status)
	}

	return merged(wanted.Metadata.Annotations, is.Metadata.Annotations) && merged(wanted.Spec, is.Spec) &&
		merged(wanted.Data, is.Data) && merged(wanted.Status, is.Status)
}

// merged tells whether a merge patch would change nothing.
func merged(patch, is any) bool {
	fields, ok := patch.(map[string]any)
	if !ok {
		return patch == nil || reflect.DeepEqual(patch, is)
	}

	there, _ := is.(map[string]any)

	for key, value := range fields {
		standing, stands := there[key]
		if value == nil && stands || value != nil && !merged(value, standing) {
			return false
		}
	}

	return true
}

// dataOver is the data of a ConfigMap after a write that says all that it changed: a
// merge patch of what stood, or else the whole object.
func (e auditEvent) dataOver(stood map[string]string) map[string]string {
	var asked struct {
		Data map[string]*string `json:"data"`
	}

	if json.Unmarshal(e.RequestObject, &asked) != nil {
		return stood
	}

	now := map[string]string{}
	if e.Verb == "patch" {
		maps.Copy(now, stood)
	}

	for key, value := range asked.Data {
		if value == nil {
			delete(now, key)
		} else {
			now[key] = *value
		}
	}

	return now
}

// object is the part of the resulting object that the history looks at.
func (e auditEvent) object() resultObject {
	var object resultObject

	// A response that is no object of the kind has none of the fields.
	if json.Unmarshal(e.ResponseObject, &object) != nil {
		return resultObject{}
	}

	return object
}

// version orders the writes of an object; 0 where the answer was no object.
func (o resultObject) version() uint64 {
	version, err := strconv.ParseUint(o.Metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0
	}

	return version
}

// resultObject is what a Node, Lease, ConfigMap or custom resource has.
type resultObject struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable  bool   `json:"unschedulable"`
		HolderIdentity string `json:"holderIdentity"`
		RenewTime      string `json:"renewTime"`
		NodeName       string `json:"nodeName"`
	} `json:"spec"`
	Data   map[string]string `json:"data"`
	Status resultStatus      `json:"status"`
}
