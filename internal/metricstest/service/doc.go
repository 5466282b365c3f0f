// Package service runs a service in which each thing happens that a metric of oncebox shows.
package service
