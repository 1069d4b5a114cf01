// A static file server over TLS: what catalogd's serving is compared with where nginx is not at hand. Standard library
// only. Files lie in one folder; where the client takes gzip and there is a .gz beside a file, that is sent.
package main

import (
	"crypto/tls"
	"flag"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	dir := flag.String("dir", ".", "folder of the files")
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	certificate := flag.String("cert", "", "certificate file")
	key := flag.String("key", "", "key file")
	flag.Parse()
	serve := func(w http.ResponseWriter, r *http.Request) {
		path := filepath.Join(*dir, filepath.Base(r.URL.Path))
		if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
			if _, err := os.Stat(path + ".gz"); err == nil {
				w.Header().Set("Content-Encoding", "gzip")
				path += ".gz"
			}
		}
		file, err := os.Open(path)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/jsonl")
		if w.Header().Get("Content-Encoding") != "" {
			// the library leaves the length out then
			w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
		}
		http.ServeContent(w, r, "", info.ModTime(), file)
	}
	server := &http.Server{
		Handler:   http.HandlerFunc(serve),
		TLSConfig: &tls.Config{NextProtos: []string{"http/1.1"}},
	}
	listener, err := net.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.ServeTLS(listener, *certificate, *key))
}
