// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
)

// Kubeconfig is the administrator's, with everything inline. Its server is the
// shared address, which leads to whichever control plane is up.
func (s *Server) Kubeconfig() ([]byte, error) {
	if s.admin == nil {
		return nil, errors.New("the simulated Kubernetes has not been started")
	}

	return s.admin, nil
}

// Config reaches the API server whatever state the simulated control planes are
// in. What is written with it is in the history as somebody else's.
func (s *Server) Config() (*rest.Config, error) {
	if s.admin == nil {
		return nil, errors.New("the simulated Kubernetes has not been started")
	}

	identity, err := identify(s.ca, userAdmin, groupAdmins)
	if err != nil {
		return nil, err
	}

	return s.plane.config(identity, agentDirect), nil
}

// KubeconfigFor is the administrator's by way of one control plane only.
func (s *Server) KubeconfigFor(node string) ([]byte, error) {
	if s.admin == nil {
		return nil, errors.New("the simulated Kubernetes has not been started")
	}

	port := s.front.port(node)
	if port == 0 {
		return nil, fmt.Errorf("%q is not the name of a control plane", node)
	}

	return s.kubeconfig(port)
}

func (s *Server) kubeconfig(port int) ([]byte, error) {
	identity, err := identify(s.ca, userAdmin, groupAdmins)
	if err != nil {
		return nil, err
	}

	return encodeKubeconfig("https://"+hostPort(port), s.ca.PEM, identity, simulated(userAdmin))
}
