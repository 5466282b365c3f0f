// The bridge is a module of its own, so that fasthttp never enters the product's go.mod.
module github.com/oncebox/oncebox/httpmw/fasthttpmw

go 1.26.0

require github.com/valyala/fasthttp v1.69.0

require (
	github.com/andybalholm/brotli v1.2.0 // indirect
	github.com/klauspost/compress v1.18.2 // indirect
	github.com/valyala/bytebufferpool v1.0.0 // indirect
)
