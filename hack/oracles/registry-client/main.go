// Calls a registry as clients of OLM Classic do: google.golang.org/grpc, with the messages of the reference.
//
//	oracle-registry-client ADDRESS AUTHORITY
//
// Reads lines `METHOD REQUEST`, the request as JSON, and writes a line of JSON for each: {"messages": [...]}, each message in its encoding,
// base64, or {"code": "NotFound", "message": "..."}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"os"
	"strings"
	"time"

	_ "github.com/operator-framework/operator-registry/pkg/api"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

const timeout = 30 * time.Second

// Answer has bytes, which are base64 in JSON.
type Answer struct {
	Messages [][]byte `json:"messages"`
	Code     string   `json:"code,omitempty"`
	Message  string   `json:"message,omitempty"`
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 3 {
		log.Fatal("usage: oracle-registry-client ADDRESS AUTHORITY")
	}
	connection, err := grpc.NewClient(os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithAuthority(os.Args[2]))
	if err != nil {
		log.Fatal(err)
	}
	defer connection.Close()
	described, err := protoregistry.GlobalFiles.FindDescriptorByName("api.Registry")
	if err != nil {
		log.Fatal(err)
	}
	service := described.(protoreflect.ServiceDescriptor)
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		method, request, _ := strings.Cut(lines.Text(), " ")
		var answer Answer
		if err := call(connection, service, method, request, &answer); err != nil {
			failed := status.Convert(err)
			answer = Answer{Code: failed.Code().String(), Message: failed.Message()}
		}
		if err := out.Encode(answer); err != nil {
			log.Fatal(err)
		}
	}
}

func call(connection *grpc.ClientConn, service protoreflect.ServiceDescriptor, name, request string, answer *Answer) error {
	method := service.Methods().ByName(protoreflect.Name(name))
	if method == nil {
		log.Fatalf("api.Registry has no method %q", name)
	}
	in, out := message(method.Input()), message(method.Output())
	if err := protojson.Unmarshal([]byte(request), in); err != nil {
		log.Fatalf("%s %s: %v", name, request, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	stream, err := connection.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/api.Registry/"+name)
	if err != nil {
		return err
	}
	if err := stream.SendMsg(in); err != nil {
		return err
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	for {
		err := stream.RecvMsg(out)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		bytes, err := proto.Marshal(out)
		if err != nil {
			return err
		}
		answer.Messages = append(answer.Messages, bytes)
		proto.Reset(out)
	}
}

func message(described protoreflect.MessageDescriptor) proto.Message {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(described.FullName())
	if err != nil {
		log.Fatal(err)
	}
	return kind.New().Interface()
}
