// Command orders is the reference service on Kafka. See https://pkg.go.dev/github.com/oncebox/oncebox/examples/orders.
package main

import (
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/messaging/kafka"
)

func main() { shop.Main(kafka.Kind()) }
