// The operator that `make test-node` installs: it serves probes and, where OLM mounts a certificate, a validating and a
// conversion webhook for its kind Widget. In v1 the size is `spec.size`, in v2 `spec.replicas`; sizes above 10 are rejected.
// With -api it serves an aggregated API with one resource, `things`, to everybody who reaches it.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"time"
)

type object = map[string]any

func main() {
	version := flag.String("version", "", "the version to report at /version")
	certificates := flag.String("cert-dir", "/tmp/k8s-webhook-server/serving-certs", "the folder of tls.crt and tls.key")
	api := flag.String("api", "", "the aggregated API to serve, as GROUP/VERSION")
	apiCertificates := flag.String("api-cert-dir", "/apiserver.local.config/certificates", "the folder of apiserver.crt and apiserver.key")
	linger := flag.Duration("linger", 0, "how long to serve after the signal to end: until then no proxy leads new connections here")
	flag.Parse()

	probes := http.NewServeMux()
	probes.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	probes.HandleFunc("/version", func(answer http.ResponseWriter, _ *http.Request) { fmt.Fprintln(answer, *version) })
	servers := []*http.Server{{Addr: ":8081", Handler: probes, ReadHeaderTimeout: 5 * time.Second}}
	if _, err := os.Stat(filepath.Join(*certificates, "tls.crt")); err == nil {
		webhooks := http.NewServeMux()
		webhooks.HandleFunc("/validate", review(validate))
		webhooks.HandleFunc("/convert", review(convert))
		servers = append(servers, secured(":9443", webhooks, filepath.Join(*certificates, "tls")))
	}
	if *api != "" {
		servers = append(servers, secured(":5443", aggregated(*api, *version), filepath.Join(*apiCertificates, "apiserver")))
	}
	var ending atomic.Bool
	for _, server := range servers {
		server.Handler = withoutReuse(&ending, server.Handler)
	}
	log.Printf("sample-operator %s, %d servers", *version, len(servers))
	for _, server := range servers {
		go func() {
			serve := server.ListenAndServe
			if server.TLSConfig != nil {
				serve = func() error { return server.ListenAndServeTLS("", "") }
			}
			if err := serve(); !errors.Is(err, http.ErrServerClosed) {
				log.Fatal(err)
			}
		}()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	<-signals
	ending.Store(true)
	time.Sleep(*linger)
	deadline, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, server := range servers {
		_ = server.Shutdown(deadline)
	}
}

// withoutReuse asks clients, once the operator is ending, to send nothing more on their connections: the apiserver does not repeat a
// webhook call whose connection is closed.
func withoutReuse(ending *atomic.Bool, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if ending.Load() {
			answer.Header().Set("Connection", "close")
		}
		handler.ServeHTTP(answer, request)
	})
}

// secured serves with the pair of files NAME.crt and NAME.key.
func secured(address string, handler http.Handler, name string) *http.Server {
	return &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 5 * time.Second,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			// read for each connection: OLM rotates it
			pair, err := tls.LoadX509KeyPair(name+".crt", name+".key")
			return &pair, err
		}}}
}

// aggregated serves discovery and the list of things of an API; the only thing has the version of this operator.
func aggregated(api, version string) http.Handler {
	served := func(body object) http.HandlerFunc {
		return func(answer http.ResponseWriter, _ *http.Request) {
			answer.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(answer).Encode(body)
		}
	}
	thing := object{"apiVersion": api, "kind": "Thing", "metadata": object{"name": "served"}, "spec": object{"version": version}}
	mux := http.NewServeMux()
	mux.HandleFunc("/apis/"+api, served(object{"apiVersion": "v1", "kind": "APIResourceList", "groupVersion": api, "resources": []object{
		{"name": "things", "singularName": "thing", "namespaced": false, "kind": "Thing", "verbs": []string{"list"}},
	}}))
	mux.HandleFunc("/apis/"+api+"/things", served(object{"apiVersion": api, "kind": "ThingList", "metadata": object{}, "items": []object{thing}}))
	return mux
}

// review answers a request of the apiserver: an AdmissionReview or a ConversionReview.
func review(respond func(request object) object) http.HandlerFunc {
	return func(answer http.ResponseWriter, asked *http.Request) {
		var body object
		if err := json.NewDecoder(http.MaxBytesReader(answer, asked.Body, 8<<20)).Decode(&body); err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		request, _ := body["request"].(object)
		response := respond(request)
		response["uid"] = request["uid"]
		answer.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(answer).Encode(object{"apiVersion": body["apiVersion"], "kind": body["kind"], "response": response})
	}
}

// size gives the size of a Widget of either version, and its field.
func size(widget object) (float64, string) {
	spec, _ := widget["spec"].(object)
	for _, field := range []string{"size", "replicas"} {
		if number, found := spec[field].(float64); found {
			return number, field
		}
	}
	return 0, ""
}

func validate(request object) object {
	widget, _ := request["object"].(object)
	if number, field := size(widget); number > 10 {
		message := fmt.Sprintf("spec.%s: %v is above 10", field, number)
		return object{"allowed": false, "status": object{"message": message, "code": 422, "reason": "Invalid"}}
	}
	return object{"allowed": true}
}

func convert(request object) object {
	desired, _ := request["desiredAPIVersion"].(string)
	objects, _ := request["objects"].([]any)
	for _, item := range objects {
		widget, _ := item.(object)
		number, field := size(widget)
		widget["apiVersion"] = desired
		if spec, found := widget["spec"].(object); found && field != "" {
			delete(spec, field)
			if desired[len(desired)-1] == '1' {
				spec["size"] = number
			} else {
				spec["replicas"] = number
			}
		}
	}
	return object{"result": object{"status": "Success"}, "convertedObjects": objects}
}
