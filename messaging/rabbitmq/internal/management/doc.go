// Package management reads what AMQP does not show, queues with their arguments and policies, exchanges, and the alarms of nodes, from the management
// plugin of RabbitMQ. It changes nothing.
//
// Read first: client.go:Client.
package management
