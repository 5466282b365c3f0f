// Command orders is the reference service on Kafka. See https://pkg.go.dev/github.com/oncebox/oncebox/examples/orders.
package main

import (
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/messaging/kafka"
	"github.com/oncebox/oncebox/serve"
)

func main() { serve.Main(shop.Service(), kafka.Kind()) }
