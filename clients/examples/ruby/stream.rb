#!/usr/bin/env ruby
# Streams a continuation of a text: stream.rb [PROMPT]
#
# QUIRE_SERVER names the server (default 127.0.0.1:50051), QUIRE_CA_CERT a PEM file of its authority,
# which switches TLS on, QUIRE_SERVER_NAME the name in its certificate, QUIRE_API_KEY a key.
require "grpc"
require "quire/v1/inference_services_pb"

server = ENV.fetch("QUIRE_SERVER", "127.0.0.1:50051")
ca_cert, name, key = ENV.values_at("QUIRE_CA_CERT", "QUIRE_SERVER_NAME", "QUIRE_API_KEY")
local = server.match?(/\A(unix:|localhost:|127\.|\[::1\])/)
if key && !ca_cert && !local
  abort "stream.rb: the key would cross the network in plaintext: set QUIRE_CA_CERT"
end

tls = GRPC::Core::ChannelCredentials.new(File.read(ca_cert)) if ca_cert
arguments = name ? { GRPC::Core::Channel::SSL_TARGET => name } : {}
stub = Quire::V1::Inference::Stub.new(server, tls || :this_channel_is_insecure, channel_args: arguments)

prompt = ARGV.fetch(0, "Once upon a time")
request = Quire::V1::GenerateRequest.new(
  text: prompt,
  sampling: Quire::V1::SamplingParams.new(temperature: 0),
  stop: Quire::V1::StopConditions.new(max_tokens: 30)
)
metadata = key ? { "authorization" => "Bearer #{key}" } : {}

begin
  print prompt
  stub.generate(request, metadata: metadata, deadline: Time.now + 120).each do |frame|
    case frame.event
    when :tokens
      print frame.tokens.text
      $stdout.flush
    when :finished
      usage = frame.finished.usage
      puts "\n#{frame.finished.reason}: #{usage.completion_tokens} tokens"
    end
  end
rescue GRPC::BadStatus => e
  abort "\n#{e.class}: #{e.details}" # docs/errors.md has the codes and their reasons
end
