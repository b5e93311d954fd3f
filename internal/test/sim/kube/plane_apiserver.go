// SPDX-License-Identifier: MPL-2.0

package kube

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/vitistack/terraform-provider-talosupgrade/internal/test/sim/certificate"
)

const (
	// userSimulator is who writes for the kubelets, the scheduler and other
	// parts that the simulator plays; the audit log leaves it out.
	userSimulator = "talossim"
	// userMachine is who writes for a machine that upgrades itself.
	userMachine = "talossim:machine"
	// userAdmin is who the kubeconfig for clients belongs to.
	userAdmin = "admin"

	userControllers = "system:kube-controller-manager"
	groupAdmins     = "system:masters"

	// agentDirect begins the user agent of who is given a [rest.Config].
	agentDirect = "talossim-direct"
	// simulatedName is the cluster in the kubeconfigs of the upgraded cluster.
	simulatedName = "talossim"
)

func (p *plane) file(name string) string { return filepath.Join(p.dir, "pki", name) }

func (p *plane) writeFiles() error {
	for _, dir := range []string{p.logs, filepath.Join(p.dir, "pki")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("creating the directory of the Kubernetes side: %w", err)
		}
	}

	if err := os.WriteFile(p.file("ca.crt"), p.ca.PEM, 0o600); err != nil {
		return fmt.Errorf("writing the certificate authority: %w", err)
	}

	if err := os.WriteFile(p.file("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("writing the audit policy: %w", err)
	}

	serving, err := p.ca.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: "kube-apiserver"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}, DNSNames: []string{"localhost", "kubernetes", "kubernetes.default.svc"},
	})
	if err != nil {
		return err
	}

	if err := serving.Write(p.file("apiserver")); err != nil {
		return err
	}

	accounts, err := identify(p.ca, "service-accounts")
	if err != nil {
		return err
	}

	return accounts.Write(p.file("service-accounts"))
}

func (p *plane) startAPIServer(ctx context.Context, port int) error {
	p.address = hostPort(port)

	child, err := startProcess(p.logs, "kube-apiserver", p.binaries.APIServer, p.audit,
		"--etcd-servers="+p.etcdURL,
		"--bind-address="+loopback, "--advertise-address="+loopback, "--secure-port="+strconv.Itoa(port),
		"--endpoint-reconciler-type=none",
		"--tls-cert-file="+p.file("apiserver.crt"), "--tls-private-key-file="+p.file("apiserver.key"),
		"--client-ca-file="+p.file("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.file("service-accounts.crt"),
		"--service-account-signing-key-file="+p.file("service-accounts.key"),
		"--service-cluster-ip-range=10.96.0.0/16",
		"--authorization-mode=RBAC", "--allow-privileged=true",
		// Nobody creates service accounts here.
		"--disable-admission-plugins=ServiceAccount",
		"--enable-priority-and-fairness=false",
		"--audit-policy-file="+p.file("audit.yaml"),
		// Standard output is a pipe to the reader of the log: nothing rotates,
		// and a line is there when it is written.
		"--audit-log-path=-", "--audit-log-mode=blocking", "--audit-log-format=json",
	)
	if err != nil {
		return err
	}

	p.processes = append(p.processes, child)

	identity, err := identify(p.ca, userSimulator, groupAdmins)
	if err != nil {
		return err
	}

	prober, err := newClient(p.config(identity, userSimulator))
	if err != nil {
		return err
	}
	defer prober.close()

	return child.serves(ctx, prober.transport, "https://"+p.address+"/readyz")
}

// startControllers brings up kube-controller-manager with what workloads, their
// budgets and the manifests of Talos need, and nothing that would take over a part
// the simulator plays.
func (p *plane) startControllers() error {
	identity, err := identify(p.ca, userControllers, groupAdmins)
	if err != nil {
		return err
	}

	config, err := encodeKubeconfig("https://"+p.address, p.ca.PEM, identity, simulated(userControllers))
	if err != nil {
		return err
	}

	if err := os.WriteFile(p.file("controllers.kubeconfig"), config, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of kube-controller-manager: %w", err)
	}

	child, err := startProcess(p.logs, "kube-controller-manager", p.binaries.ControllerManager, nil,
		"--kubeconfig="+p.file("controllers.kubeconfig"),
		"--controllers=deployment-controller,replicaset-controller,daemonset-controller,disruption-controller,garbage-collector-controller",
		"--leader-elect=false", "--secure-port=0", "--use-service-account-credentials=false",
		"--kube-api-qps=1000", "--kube-api-burst=2000",
	)
	if err != nil {
		return err
	}

	p.processes = append(p.processes, child)

	return nil
}

// identify issues the certificate of a user, who belongs to the groups.
func identify(ca *certificate.Authority, user string, groups ...string) (certificate.Pair, error) {
	return ca.Issue(x509.Certificate{
		Subject: pkix.Name{CommonName: user, Organization: groups}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// kubeconfigNames are what the entries of a kubeconfig are called.
type kubeconfigNames struct{ cluster, user, context string }

// simulated names a user of the upgraded cluster.
func simulated(user string) kubeconfigNames {
	return kubeconfigNames{cluster: simulatedName, user: user, context: user + "@" + simulatedName}
}

// encodeKubeconfig is a kubeconfig with everything inline.
func encodeKubeconfig(server string, ca []byte, identity certificate.Pair, names kubeconfigNames) ([]byte, error) {
	config := clientcmdapi.NewConfig()
	config.Clusters[names.cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos[names.user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: identity.Certificate,
		ClientKeyData:         identity.Key,
	}
	config.Contexts[names.context] = &clientcmdapi.Context{Cluster: names.cluster, AuthInfo: names.user, Namespace: "default"}
	config.CurrentContext = names.context

	encoded, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("encoding a kubeconfig: %w", err)
	}

	return encoded, nil
}
