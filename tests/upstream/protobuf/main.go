// Converts CustomResourceDefinitions between JSON and protobuf with Kubernetes' own codecs.
//
//	crdprotobuf encode  <JSON      >protobuf
//	crdprotobuf decode  <protobuf  >JSON
package main

import (
	"fmt"
	"io"
	"os"

	"k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/scheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
)

func main() {
	text := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{})
	binary := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	var from, to runtime.Serializer = text, binary
	if os.Args[1] == "decode" {
		from, to = binary, text
	}
	if err := convert(from, to); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func convert(from, to runtime.Serializer) error {
	body, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	object, _, err := from.Decode(body, nil, nil)
	if err != nil {
		return err
	}
	return to.Encode(object, os.Stdout)
}
