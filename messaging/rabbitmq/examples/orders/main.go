// Command orders is the reference service on RabbitMQ. See https://pkg.go.dev/github.com/oncebox/oncebox/examples/orders.
package main

import (
	"github.com/oncebox/oncebox/examples/orders/shop"
	"github.com/oncebox/oncebox/messaging/rabbitmq"
	"github.com/oncebox/oncebox/serve"
)

func main() { serve.Main(shop.Service(), rabbitmq.Kind()) }
