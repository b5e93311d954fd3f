// SPDX-License-Identifier: MPL-2.0

package apiserver

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/bootstrap"
	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/model"
)

// Bootstrap makes the control planes create their bootstrap manifests if they are missing: now, and whenever one of
// them has booted or got another configuration. From then on kube-proxy and CoreDNS are what the objects say that
// clients write, all objects remember who wrote which of their fields, and [Server.ApplyManifests] has no use any
// more. CoreDNS has no pods.
func (s *Server) Bootstrap() error {
	objects, err := dynamic.NewForConfigAndClient(&rest.Config{Host: "http://" + anywhere, QPS: -1},
		&http.Client{Transport: &Transport{way: way{server: s}, who: itself(), direct: true}})
	if err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}

	s.lock()
	s.bootstrapped = true
	s.serveDefinitions()
	s.mu.Unlock()

	creation := creation{server: s, objects: objects, done: map[string]string{}}
	if err := creation.create(); err != nil {
		return fmt.Errorf("apiserver: %w", err)
	}

	s.work.Go(creation.goOn)

	return nil
}

// creation creates the bootstrap manifests in the cluster.
type creation struct {
	server  *Server
	objects dynamic.Interface
	// done is the boot and configuration for which a control plane has created its manifests.
	done map[string]string
}

// goOn creates manifests until the server ends.
func (f *creation) goOn() {
	for {
		noticed, _ := f.server.noticed()
		pause := time.Hour

		if f.create() != nil {
			// It is tried again, as a control plane does.
			pause = f.server.real(rolloutPause)
		}

		again := time.NewTimer(pause)

		select {
		case <-f.server.life.Done():
			again.Stop()

			return
		case <-noticed:
		case <-again.C:
		}

		again.Stop()
	}
}

// create makes each control plane that has not done so yet create its manifests.
func (f *creation) create() error {
	world := f.server.world

	for _, state := range world.KubeStates() {
		from := state.BootID + "/" + strconv.Itoa(state.ConfigVersion)
		if state.Role != model.ControlPlane || !state.Kubelet.Running || !world.APIServerUp(state.Name) || f.done[state.Name] == from {
			continue
		}

		machine, err := world.Node(state.Name)
		if err != nil {
			continue
		}

		var objects []*unstructured.Unstructured

		for _, manifest := range bootstrap.Render(machine) {
			for _, object := range manifest.Objects {
				objects = append(objects, &unstructured.Unstructured{Object: object})
			}
		}

		if _, err := bootstrap.NewCreator(f.objects, machine.Talos).Create(f.server.life, objects); err != nil {
			return err
		}

		f.done[state.Name] = from
	}

	return nil
}

// admitRollout keeps the status of a workload, counts its generation, and refuses another selector.
func admitRollout(of *table, current, wanted object) error {
	var before, after any

	switch one := wanted.(type) {
	case *appsv1.Deployment:
		standing, _ := current.(*appsv1.Deployment)
		one.Status, after = appsv1.DeploymentStatus{}, one.Spec

		if standing != nil {
			one.Status, before = standing.Status, standing.Spec

			if !equality.Semantic.DeepEqual(standing.Spec.Selector, one.Spec.Selector) {
				return invalid(of, one.Name, "spec.selector: field is immutable")
			}
		}
	case *appsv1.DaemonSet:
		standing, _ := current.(*appsv1.DaemonSet)
		one.Status, after = appsv1.DaemonSetStatus{}, one.Spec

		if standing != nil {
			one.Status, before = standing.Status, standing.Spec

			if !equality.Semantic.DeepEqual(standing.Spec.Selector, one.Spec.Selector) {
				return invalid(of, one.Name, "spec.selector: field is immutable")
			}
		}
	}

	generation := int64(0)
	if before != nil {
		generation = current.GetGeneration()
	}

	if !equality.Semantic.DeepEqual(before, after) {
		generation++
	}

	wanted.SetGeneration(generation)

	return nil
}

// rollOut makes the cluster follow a change of a workload.
func (s *Server) rollOut(who actor, of *table, at key) {
	if !s.bootstrapped || of.version != appsv1.SchemeGroupVersion {
		return
	}

	now := of.objects[at]

	if of.name == resourceDaemonSets && at == (key{namespaceSystem, model.ProxyName}) {
		if image := imageOf(now); image != s.system.proxy {
			s.setProxy(image)

			for _, state := range s.world.KubeStates() {
				if image == "" {
					s.world.SetProxy(state.Name, "")
				}
			}
		}
	}

	if now == nil {
		return
	}

	started := s.system.rollouts[now.GetUID()]
	if started.generation == now.GetGeneration() {
		return
	}

	started.generation, started.ready = now.GetGeneration(), s.now()

	// The workloads with which the cluster begins are ready.
	if who != itself() {
		started.ready = s.now().Add(coreDNSTime)
	}

	s.system.rollouts[now.GetUID()] = started
}

// rollout is the progress of the pods of a workload.
type rollout struct {
	generation int64
	// ready is when all of them are of this generation, and run.
	ready time.Time
}

// imageOf returns the image of the first container of a DaemonSet; empty for none.
func imageOf(of object) string {
	set, ok := of.(*appsv1.DaemonSet)
	if !ok || len(set.Spec.Template.Spec.Containers) == 0 {
		return ""
	}

	return set.Spec.Template.Spec.Containers[0].Image
}

// showRollouts updates the statuses of workloads.
func (s *Server) showRollouts() {
	if !s.bootstrapped {
		return
	}

	for _, of := range []*table{s.table(appsv1.SchemeGroupVersion, resourceDeployments), s.table(appsv1.SchemeGroupVersion, resourceDaemonSets)} {
		for at, standing := range of.objects {
			shown, _ := standing.DeepCopyObject().(object)
			done := !s.now().Before(s.system.rollouts[shown.GetUID()].ready)

			switch one := shown.(type) {
			case *appsv1.Deployment:
				one.Status = deploymentStatus(one, done)
			case *appsv1.DaemonSet:
				one.Status = s.daemonStatus(one, done)
				if at == (key{namespaceSystem, model.ProxyName}) {
					one.Status = s.proxyStatus(one)
				}
			}

			s.show(of, shown)
		}
	}
}

// deploymentStatus returns that of a Deployment in which one pod is not up to date yet, unless it is done.
func deploymentStatus(of *appsv1.Deployment, done bool) appsv1.DeploymentStatus {
	wanted := int32(1)
	if of.Spec.Replicas != nil {
		wanted = *of.Spec.Replicas
	}

	there, progress := wanted, "NewReplicaSetAvailable"
	if !done {
		there, progress = max(0, wanted-1), "ReplicaSetUpdated"
	}

	return appsv1.DeploymentStatus{
		ObservedGeneration: of.Generation, Replicas: wanted, UpdatedReplicas: there, ReadyReplicas: there, AvailableReplicas: there,
		UnavailableReplicas: wanted - there,
		Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable"},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: progress},
		},
	}
}

// daemonStatus returns that of a DaemonSet with a pod on each node.
func (s *Server) daemonStatus(of *appsv1.DaemonSet, done bool) appsv1.DaemonSetStatus {
	wanted := int32(len(s.kubelets)) //nolint:gosec // a few nodes
	made := appsv1.DaemonSetStatus{ObservedGeneration: of.Generation, DesiredNumberScheduled: wanted, CurrentNumberScheduled: wanted}

	if done {
		made.UpdatedNumberScheduled, made.NumberReady, made.NumberAvailable = wanted, wanted, wanted
	}

	return made
}

// proxyStatus returns that of kube-proxy.
func (s *Server) proxyStatus(of *appsv1.DaemonSet) appsv1.DaemonSetStatus {
	made := appsv1.DaemonSetStatus{ObservedGeneration: of.Generation}

	for _, state := range s.world.KubeStates() {
		pod, found := s.proxyPod(state)
		if !found {
			continue
		}

		made.DesiredNumberScheduled++
		made.CurrentNumberScheduled++

		if pod.image == s.system.proxy {
			made.UpdatedNumberScheduled++
		}

		if s.proxyReady(state.Name, pod) {
			made.NumberReady++
			made.NumberAvailable++
		} else {
			made.NumberUnavailable++
		}
	}

	return made
}

// proxyOwner returns what the pods of kube-proxy have from their DaemonSet: its UID and the labels of its template.
func (s *Server) proxyOwner() (uid, labels string) {
	set, _ := s.table(appsv1.SchemeGroupVersion, resourceDaemonSets).objects[key{namespaceSystem, model.ProxyName}].(*appsv1.DaemonSet)
	if set == nil || !s.bootstrapped {
		return string(ownerUID("DaemonSet", model.ProxyName)), labelComponent + "=" + model.ProxyName
	}

	return string(set.UID), pairs(set.Spec.Template.Labels)
}
