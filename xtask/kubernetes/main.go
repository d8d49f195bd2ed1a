// The parts of a real Kubernetes in one program, for tests on the loopback: the first argument says which, the rest is that part's own.
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"sort"
	"strings"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func() *cobra.Command{
	"apiserver":   func() *cobra.Command { return apiserver.NewAPIServerCommand() },
	"controllers": func() *cobra.Command { return controllers.NewControllerManagerCommand() },
	"scheduler":   func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":     func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kubectl":     func() *cobra.Command { return kubectl.NewDefaultKubectlCommand() },
}

func main() {
	part := ""
	if len(os.Args) > 1 {
		part = os.Args[1]
		os.Args = os.Args[1:]
	}
	if part == "etcd" && len(os.Args) == 3 {
		fmt.Fprintln(os.Stderr, "etcd:", etcd(os.Args[1], os.Args[2]))
		os.Exit(1)
	}
	command, known := parts[part]
	if !known {
		names := []string{"etcd FOLDER PORT"}
		for name := range parts {
			names = append(names, name)
		}
		sort.Strings(names)
		fmt.Fprintln(os.Stderr, "one of:", strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}

// Serves one member on the loopback until it fails. What it keeps is for one test: nothing waits for a disk.
func etcd(folder, port string) error {
	address := func(port string) []url.URL {
		return []url.URL{{Scheme: "http", Host: "127.0.0.1:" + port}}
	}
	config := embed.NewConfig()
	config.Dir = folder
	config.LogLevel = "error"
	config.UnsafeNoFsync = true
	config.ListenClientUrls, config.AdvertiseClientUrls = address(port), address(port)
	config.ListenPeerUrls, config.AdvertisePeerUrls = address("0"), address("0")
	config.InitialCluster = config.Name + "=http://127.0.0.1:0"
	server, err := embed.StartEtcd(config)
	if err != nil {
		return err
	}
	return <-server.Err()
}
