// What clients of Node send when they try again, by themselves or by hand.
import axios from 'axios'
import axiosRetry from 'axios-retry'
import ky from 'ky'
import got from 'got'

const url = process.env.URL
const json = { amount: 1, note: 'hello' }
const form = () => new URLSearchParams({ amount: '1', note: 'hello' })
const files = () => {
  const data = new FormData()
  data.append('amount', '1')
  data.append('file', new File(['hello'], 'a.txt', { type: 'text/plain' }))
  return data
}
const headers = key => ({ 'Idempotency-Key': key })

axiosRetry(axios, { retries: 2 })
for (const [name, data] of Object.entries({ json, form: form(), files: files() })) {
  const key = `axios-retry-${name}`
  await axios.post(`${url}/${key}`, data, { headers: headers(key) })
}

const retry = { limit: 2, methods: ['post'] }
for (const [name, body] of Object.entries({ json: { json }, form: { body: form() }, files: { body: files() } })) {
  const key = `ky-${name}`
  await ky.post(`${url}/${key}`, { ...body, retry, headers: headers(key) })
}

for (const [name, body] of Object.entries({ json: { json }, form: { form: json } })) {
  const key = `got-${name}`
  await got.post(`${url}/${key}`, { ...body, retry: { limit: 2, methods: ['POST'] }, headers: headers(key) })
}

// got does not send files again by itself, and fetch nothing.
for (let n = 0; n < 2; n++) {
  const key = 'got-files'
  await got.post(`${url}/${key}`, { body: files(), retry: { limit: 0 }, headers: headers(key) }).catch(() => {})
}
const stream = () => new ReadableStream({
  start(to) { to.enqueue(new TextEncoder().encode(JSON.stringify(json))); to.close() }
})
for (const [name, options] of Object.entries({
  json: () => ({ body: JSON.stringify(json), headers: { 'Content-Type': 'application/json' } }),
  files: () => ({ body: files() }),
  stream: () => ({ body: stream(), duplex: 'half', headers: { 'Content-Type': 'application/json' } })
})) {
  const key = `fetch-${name}`
  for (let n = 0; n < 2; n++) {
    const made = options()
    await fetch(`${url}/${key}`, { method: 'POST', ...made, headers: { ...made.headers, ...headers(key) } }).catch(() => {})
  }
}
