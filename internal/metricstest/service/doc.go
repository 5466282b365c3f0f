// Package service runs a service that gives every metric of oncebox a value.
package service
